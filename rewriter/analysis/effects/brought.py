"""Calls that bring files: downloads, and what is unpacked."""

from __future__ import annotations

import libcst as cst

from ...facts.torch_api import surroundings
from ..dataflow.callees import made_names, method_name, outside_name
from ..dataflow.values import CallRecord, Unknown
from ..syntax.walk import nodes_in

_COMMANDS = ("wget", "curl", "unzip", "tar ", "git clone", "gdown", "7z ", "gunzip")
_ASKING = (
    *("stty size", "nvidia-smi", "hostname", "uname", "whoami", "nproc", "tput cols", "tput lines"),
    *("git rev-parse", "git describe", "git log", "git status", "git diff", "git show"),
)
"""Commands that ask for something, and change nothing."""


def only_asks(call: cst.Call) -> bool:
    """Whether a call runs a command that is written out and changes nothing: ``os.popen("stty size")``."""
    given = call.args[0].value if call.args and not call.args[0].star else None
    words = [element.value for element in given.elements] if isinstance(given, (cst.List, cst.Tuple)) else [given]
    if not all(isinstance(word, cst.SimpleString) for word in words):
        return False
    text = " ".join(str(word.evaluated_value) for word in words if isinstance(word, cst.SimpleString))
    asks = any(text == one or text.startswith(f"{one} ") for one in _ASKING)
    return asks and not any(sign in text for sign in (">", "|", ";", "&", "`", "$("))


def brings(record: CallRecord) -> bool:
    """Whether a call fetches files, or unpacks them, whatever is there already."""
    call, name = record.node, outside_name(record)
    if surroundings.fetches(name) or any(map(surroundings.fetches_by_method, made_names(record))):
        return True
    if method_name(call) in ("extractall", "extract"):
        things = record.receiver.things if record.receiver is not None else ()
        return any(isinstance(t, Unknown) and t.qualified.startswith(("zipfile.", "tarfile.")) for t in things)
    if name in ("os.system", "subprocess.run", "subprocess.call", "subprocess.check_call"):
        words = (n.value for arg in call.args for n in nodes_in(arg, cst.SimpleString))
        return any(word.strip("rfb\"'").startswith(_COMMANDS) for word in words)
    return False
