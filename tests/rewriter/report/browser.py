"""A headless Chromium to drive: its protocol over two pipes, so that nothing else has to be installed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS = 300


def found() -> str | None:
    """The browser of this machine."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page. `run` evaluates JavaScript in it; `errors` are the exceptions that its own script raised."""

    def __init__(self, profile: Path) -> None:
        executable = found()
        assert executable
        ours, theirs = os.pipe(), os.pipe()
        options = (
            "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking "
            "--no-first-run --disable-extensions --hide-scrollbars --remote-debugging-pipe"
        )
        command = f'exec "{executable}" {options} "--user-data-dir={profile}" about:blank 3<&{ours[0]} 4>&{theirs[1]}'
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(
            ["bash", "-c", command], pass_fds=(ours[0], theirs[1]), stdin=quiet, stdout=quiet, stderr=quiet
        )
        os.close(ours[0])
        os.close(theirs[1])
        self._in, self._out = ours[1], theirs[0]
        self._rest = b""
        self._number = 0
        self._session = ""
        self.errors: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            assert time.monotonic() < end, "the browser does not answer"
            if select.select([self._out], [], [], 1)[0]:
                data = os.read(self._out, 1 << 20)
                assert data, "the browser has gone"
                self._rest += data
        raw, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(message["params"]["exceptionDetails"]))
        return message

    def run(self, code: str) -> Any:
        """Evaluate JavaScript; what it throws fails the test."""
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def open(self, file: Path) -> None:
        """Load a page and wait until it is there."""
        self.call("Page.navigate", url=file.resolve().as_uri())
        end = time.monotonic() + SECONDS
        while self.run("location.protocol === 'file:' && document.readyState") != "complete":
            assert time.monotonic() < end, "the page does not load"
            time.sleep(0.02)

    def key(self, key: str) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=key if len(key) == 1 else "")

    def mouse(self, x: float, y: float, *, click: bool = False) -> None:
        """Put the mouse somewhere, and click there."""
        for kind in ("mouseMoved", *(("mousePressed", "mouseReleased") if click else ())):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left" if click else "none", clickCount=1)

    def size(self, width: int, height: int = 900) -> None:
        """Make the window as wide."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def colours(self, scheme: str) -> None:
        """Let the reader's system be `light` or `dark`."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, file: Path) -> None:
        """Write what is seen as a PNG."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """End the browser."""
        os.close(self._in)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._out)
