"""Loss curves as a picture: one line for each run, as SVG that is embedded in the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT = 720, 300
_LEFT, _TOP, _RIGHT, _BOTTOM = 64, 16, 16, 40
_STROKES = (
    "stroke='#64748b' stroke-width='6' stroke-opacity='0.45'",
    "stroke='#2563eb' stroke-width='2.5'",
    "stroke='#ea580c' stroke-width='1.5' stroke-dasharray='5 3'",
)


def picture(curves: Mapping[str, Sequence[float]]) -> str:
    """
    Draw losses against steps.

    Args:
        curves: the losses of each run, step by step, all finite; none of them empty.

    Returns:
        An `svg` element. The first curve is drawn broad and pale, so that those on top of it are seen to agree.
    """
    values = [value for curve in curves.values() for value in curve]
    low, high = min(values), max(values)
    high = high if high > low else low + 1.0
    steps = max(len(curve) for curve in curves.values())
    drawn = [_line(curve, low, high, steps, _STROKES[n % len(_STROKES)]) for n, curve in enumerate(curves.values())]
    legend = [_key(n, name) for n, name in enumerate(curves)]
    bottom = _HEIGHT - _BOTTOM
    frame = f"<path d='M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}' fill='none' stroke='currentColor' opacity='.4'/>"
    labels = (
        f"<text x='{_LEFT - 8}' y='{_TOP + 8}' text-anchor='end'>{high:.4g}</text>"
        f"<text x='{_LEFT - 8}' y='{bottom}' text-anchor='end'>{low:.4g}</text>"
        f"<text x='{_WIDTH - _RIGHT}' y='{bottom + 18}' text-anchor='end'>{steps} losses</text>"
    )
    title = "The losses of the original and of the migrated script, step by step"
    return (
        f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' aria-label='{title}'><title>{title}</title>"
        f"{frame}{labels}{''.join(drawn)}{''.join(legend)}</svg>"
    )


def _line(curve: Sequence[float], low: float, high: float, steps: int, stroke: str) -> str:
    across = (_WIDTH - _LEFT - _RIGHT) / max(1, steps - 1)
    down = (_HEIGHT - _TOP - _BOTTOM) / (high - low)
    points = " ".join(f"{_LEFT + n * across:.1f},{_TOP + (high - value) * down:.1f}" for n, value in enumerate(curve))
    return f"<polyline points='{points}' fill='none' stroke-linejoin='round' {stroke}/>"


def _key(number: int, name: str) -> str:
    x, y = _LEFT + number * 190, _HEIGHT - 14
    stroke = _STROKES[number % len(_STROKES)]
    return f"<path d='M{x} {y - 4}h26' {stroke}/><text x='{x + 32}' y='{y}'>{escape(name)}</text>"
