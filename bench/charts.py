"""One picture of what was measured: time against size on logarithmic axes, a panel for each piece of work, as SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from bench.readings import LAKELOG, LIMIT, Reading

_COLOURS = {
    LAKELOG: "#0b5fff",
    "DuckLake": "#e07b00",
    "delta-rs": "#7a3fb5",
    "pyiceberg": "#0f8a7e",
    "delta-spark": "#b5336d",
    "Iceberg on Spark": "#4f8f1d",
    LIMIT: "#555555",
}
_MARKS = {"SQLite": "circle", "DuckDB": "square", "PostgreSQL": "triangle", "": "diamond"}
_WIDTH, _HEIGHT = 440, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 18, 46, 44
_LEGEND = 56


@dataclass(frozen=True, slots=True)
class Panel:
    """What one panel shows, and what its axes say."""

    title: str
    across: str
    readings: Sequence[Reading]


def picture(panels: Sequence[Panel], columns: int = 2) -> str:
    """Panels side by side below one legend."""
    rows = math.ceil(len(panels) / columns)
    width, height = _WIDTH * columns, _HEIGHT * rows + _LEGEND
    style = 'font-family="system-ui, sans-serif" font-size="11" role="img"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {style}>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _legend(panels),
    ]
    for number, panel in enumerate(panels):
        x, y = number % columns * _WIDTH, number // columns * _HEIGHT + _LEGEND
        parts.append(f'<g transform="translate({x} {y})">{_panel(panel)}</g>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend(panels: Sequence[Panel]) -> str:
    shown = {reading.system for panel in panels for reading in panel.readings}
    parts, x = [], 20
    for system, colour in _COLOURS.items():
        if system in shown:
            dashes = ' stroke-dasharray="4 3"' if system == LIMIT else ""
            parts.append(f'<line x1="{x}" y1="18" x2="{x + 24}" y2="18" stroke="{colour}" stroke-width="3"{dashes}/>')
            parts.append(_text(x + 30, 22, system))
            x += 50 + 7 * len(system)
    x = 20
    for database, mark in _MARKS.items():
        parts += [_mark(mark, x + 5, 40, "#333333"), _text(x + 16, 44, database or "files alone")]
        x += 110
    return "".join(parts)


def _panel(panel: Panel) -> str:
    points = [
        (reading.size, reading.sample.median)
        for reading in panel.readings
        if reading.sample is not None and reading.size is not None and reading.sample.median > 0
    ]
    if not points:
        return ""
    across, up = (
        _Axis([x for x, _ in points], _LEFT, _WIDTH - _RIGHT),
        _Axis([y for _, y in points], _HEIGHT - _BOTTOM, _TOP),
    )
    parts = [_text(_LEFT - 40, 18, panel.title, weight="600", size=13), _text(_LEFT - 40, 34, _unit(panel))]
    for x in across.ticks:
        at = across.at(x)
        parts.append(f'<line x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{_HEIGHT - _BOTTOM}" stroke="#eeeeee"/>')
        parts.append(_text(at, _HEIGHT - _BOTTOM + 16, _short(x), anchor="middle"))
    for y in up.ticks:
        at = up.at(y)
        parts.append(f'<line x1="{_LEFT}" y1="{at:.1f}" x2="{_WIDTH - _RIGHT}" y2="{at:.1f}" stroke="#e3e3e3"/>')
        parts.append(_text(_LEFT - 6, at + 4, _short(y), anchor="end"))
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - _BOTTOM + 34, panel.across, anchor="middle"))
    # Lakelog comes last, on top of the others.
    names = sorted({(each.system == LAKELOG, each.name) for each in panel.readings})
    for _, name in names:
        parts.append(_line([each for each in panel.readings if each.name == name], across, up))
    return "".join(parts)


def _line(readings: Sequence[Reading], across: "_Axis", up: "_Axis") -> str:
    system, database = readings[0].system, readings[0].database
    colour = _COLOURS.get(system, "#333333")
    points = [
        (across.at(each.size), up.at(each.sample.median), each)
        for each in sorted(readings, key=lambda each: each.size or 0)
        if each.size is not None and each.sample is not None and each.sample.median > 0
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
    dashes = ' stroke-dasharray="4 3"' if system == LIMIT else ""
    weight = 2.6 if system == LAKELOG else 1.6
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{weight}"{dashes}/>']
    for x, y, each in points:
        assert each.sample is not None
        parts.append(
            f"<g>{_mark(_MARKS[database], x, y, colour)}"
            f"<title>{escape(each.name)}: {each.sample.median:,.3g} {escape(each.unit)} at {each.size:,}</title></g>"
        )
    return "".join(parts)


class _Axis:
    """Numbers from the power of ten below the least to the one above the greatest, spread over some pixels."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self._low = math.floor(math.log10(min(values)) + 1e-9)
        self._high = max(math.ceil(math.log10(max(values)) - 1e-9), self._low + 1)
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)

    @property
    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self._low, self._high + 1)]


def _unit(panel: Panel) -> str:
    unit = panel.readings[0].unit
    return {"ms": "milliseconds", "s": "seconds", "/s": "a second"}.get(unit, unit)


def _short(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} M"
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "400", size: int = 11) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" font-size="{size}" '
        f'fill="#222222">{escape(text)}</text>'
    )


def _mark(kind: str, x: float, y: float, colour: str) -> str:
    shapes = {
        "circle": f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>',
        "square": f'<rect x="{x - 3.6:.1f}" y="{y - 3.6:.1f}" width="7.2" height="7.2" fill="{colour}"/>',
        "triangle": f'<path d="M{x:.1f} {y - 5:.1f} l4.8 8.4 h-9.6 z" fill="{colour}"/>',
        "diamond": f'<path d="M{x:.1f} {y - 5:.1f} l5 5 l-5 5 l-5 -5 z" fill="{colour}"/>',
    }
    return shapes[kind]
