"""Bar charts as SVG text: deterministic, so that a page can be compared with its data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape

# Told apart by eyes of every kind (Okabe and Ito).
COLOURS = ("#0072b2", "#56b4e9", "#e69f00", "#999999", "#009e73", "#d55e00")

_WIDTH = 860
_LEFT = 210
_RIGHT = 90
_BAR = 18
_GAP = 16
_TOP = 78
_BOTTOM = 46
_SPACE = 'xmlns="http://www.w3.org/2000/svg"'
_FONT = 'font-family="Helvetica, Arial, sans-serif" font-size="13"'
_HEADING = 'font-size="16" font-weight="bold"'
_CENTRED = 'text-anchor="middle" fill="#475569"'


@dataclass(frozen=True)
class Chart:
    """Groups of horizontal bars: group to series to value."""

    title: str
    unit: str
    groups: Mapping[str, Mapping[str, float]]

    @property
    def series(self) -> list[str]:
        """All names of series, in order of appearance."""
        return list(dict.fromkeys(name for bars in self.groups.values() for name in bars))


def svg(chart: Chart) -> str:
    """The chart as an SVG document."""
    longest = max(value for bars in chart.groups.values() for value in bars.values())
    step = tick_step(longest)
    ticks = [step * number for number in range(math.ceil(longest / step) + 1)]
    scale = (_WIDTH - _LEFT - _RIGHT) / ticks[-1]
    bottom = _TOP + sum(len(bars) * _BAR + _GAP for bars in chart.groups.values())
    height = bottom + _BOTTOM
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    lines = [
        f'<svg {_SPACE} viewBox="0 0 {_WIDTH} {height}" {_FONT} role="img">',
        f"<title>{escape(chart.title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="20" y="28" {_HEADING} fill="#1e293b">{escape(chart.title)}</text>',
        *_legend(chart.series),
        *(_tick(value, _LEFT + value * scale, bottom) for value in ticks),
        *_bars(chart, scale),
        f'<text x="{middle:.0f}" y="{bottom + 38}" {_CENTRED}>{escape(chart.unit)}</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def tick_step(longest: float) -> float:
    """A round distance that leaves about five ticks: 1, 2 or 5 times a power of ten.

    >>> tick_step(2.3), tick_step(41), tick_step(0.9)
    (0.5, 10.0, 0.2)
    """
    power = 10.0 ** math.floor(math.log10(longest / 5))
    return next(
        power * times for times in (1.0, 2.0, 5.0, 10.0) if longest / (power * times) <= 5.5
    )


def _legend(series: list[str]) -> list[str]:
    lines, x = [], 20
    for colour, name in zip(COLOURS, series, strict=False):
        lines.append(f'<rect x="{x}" y="44" width="12" height="12" fill="{colour}"/>')
        lines.append(f'<text x="{x + 18}" y="55" fill="#1e293b">{escape(name)}</text>')
        x += 40 + 7 * len(name)
    return lines


def _tick(value: float, x: float, bottom: int) -> str:
    return (
        f'<line x1="{x:.1f}" y1="{_TOP - 6}" x2="{x:.1f}" y2="{bottom}" stroke="#e2e8f0"/>'
        f'<text x="{x:.1f}" y="{bottom + 18}" {_CENTRED}>{value:g}</text>'
    )


def _bars(chart: Chart, scale: float) -> list[str]:
    lines, y = [], _TOP
    colour = dict(zip(chart.series, COLOURS, strict=False))
    for group, bars in chart.groups.items():
        middle = y + len(bars) * _BAR / 2 + 5
        lines.append(
            f'<text x="{_LEFT - 10}" y="{middle:.0f}" text-anchor="end" fill="#1e293b">'
            f"{escape(group)}</text>"
        )
        for name, value in bars.items():
            width = value * scale
            lines.append(
                f'<rect x="{_LEFT}" y="{y + 1}" width="{width:.1f}" height="{_BAR - 2}" '
                f'fill="{colour[name]}"/>'
                f'<text x="{_LEFT + width + 6:.1f}" y="{y + 14}" fill="#1e293b">{value:.3g}</text>'
            )
            y += _BAR
        y += _GAP
    return lines
