"""SVG charts: columns over time, horizontal bars, and one stacked bar.

A chart contains no colors and no text. CSS classes give a shape its color in each theme. The drawing is stretched to
the available width, so labels are HTML next to it. Each shape has a title, and each chart a table with the same
numbers.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NamedTuple

import markupsafe

CHART_HEIGHT = 100.0  # SVG units, so that a height is a percentage
_MAX_DAYS, _MAX_WEEKS = 92, 92  # columns. Narrower ones are not distinguishable on a phone.
_COLUMN_GAP = 0.18  # of a column's width
_AXIS_STEPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_MIN_COLUMN_HEIGHT = 0.6  # SVG units, so that a small value is visible


class ChartSeries(NamedTuple):
    """The values of a series, and the CSS class of its shapes."""

    label: str
    kind: str
    values: Sequence[float]


class ChartPeriod(NamedTuple):
    """The days of one column: its label, first and last day."""

    label: str
    first: datetime.date
    last: datetime.date


def split_periods(first: datetime.date, last: datetime.date) -> list[ChartPeriod]:
    """Split a time range into days, or weeks or months if there would be too many columns."""
    days = (last - first).days + 1
    if days <= _MAX_DAYS:
        return [_day_period(first + datetime.timedelta(days=offset)) for offset in range(max(days, 0))]
    if days <= _MAX_WEEKS * 7:
        monday = first - datetime.timedelta(days=first.weekday())
        return [
            _week_period(monday + datetime.timedelta(days=offset)) for offset in range(0, (last - monday).days + 1, 7)
        ]
    periods: list[ChartPeriod] = []
    month = first.replace(day=1)
    while month <= last:
        following = (month.replace(day=28) + datetime.timedelta(days=4)).replace(day=1)
        periods.append(ChartPeriod(f"{month:%B} {month.year}", month, following - datetime.timedelta(days=1)))
        month = following
    return periods


def _day_period(day: datetime.date) -> ChartPeriod:
    return ChartPeriod(f"{day:%a} {day.day} {day:%b} {day.year}", day, day)


def _week_period(day: datetime.date) -> ChartPeriod:
    return ChartPeriod(f"Week of {day.day} {day:%b} {day.year}", day, day + datetime.timedelta(days=6))


def sum_by_period(values: dict[datetime.date, float], columns: Sequence[ChartPeriod]) -> list[float]:
    """Return the sum of the values of each column."""
    sums = [0.0] * len(columns)
    if not columns:
        return sums
    index = 0
    for day in sorted(values):
        if day < columns[0].first:
            continue
        while index < len(columns) and columns[index].last < day:
            index += 1
        if index == len(columns):
            break
        sums[index] += values[day]
    return sums


def axis_maximum(values: Sequence[float]) -> float:
    """Return the maximum of the axis: a round number, at least the largest value."""
    largest = max(values, default=0.0)
    if largest <= 0:
        return 1.0
    power = 1.0
    while power * 10 <= largest:
        power *= 10
    while power > largest:
        power /= 10
    return next(factor * power for factor in _AXIS_STEPS if factor * power >= largest - 1e-9)


def draw_columns(
    labels: Sequence[str], series: Sequence[ChartSeries], titles: Sequence[str], *, name: str
) -> markupsafe.Markup:
    """Return stacked columns as SVG, one for each label. `titles` are their tooltips."""
    totals = [sum(values) for values in zip(*(one.values for one in series), strict=True)]
    scale = CHART_HEIGHT / axis_maximum(totals)
    shapes: list[markupsafe.Markup] = []
    for index in range(len(labels)):
        level = CHART_HEIGHT
        parts: list[markupsafe.Markup] = []
        for item in series:
            height = item.values[index] * scale
            height = max(height, _MIN_COLUMN_HEIGHT) if item.values[index] > 0 else 0.0
            level -= height
            parts.append(_rect(index + _COLUMN_GAP / 2, level, 1 - _COLUMN_GAP, height, item.kind))
        title = markupsafe.Markup("<title>{}</title>").format(titles[index])
        hit = _rect(index, 0, 1, CHART_HEIGHT, "chart-reach")
        shapes.append(
            markupsafe.Markup('<g class="chart-column">{}{}{}</g>').format(title, hit, markupsafe.Markup().join(parts))
        )
    return _svg(max(len(labels), 1), shapes, name)


def draw_bar(parts: Sequence[tuple[float, str, str]], *, name: str) -> markupsafe.Markup:
    """Return one stacked bar as SVG. Each part is a value, a CSS class and a tooltip."""
    total = sum(max(value, 0.0) for value, _, _ in parts) or 1.0
    shapes: list[markupsafe.Markup] = []
    offset = 0.0
    for value, kind, title in parts:
        width = max(value, 0.0) / total * CHART_HEIGHT
        shape = _rect(offset, 0, width, CHART_HEIGHT, kind)
        shapes.append(markupsafe.Markup("<g><title>{}</title>{}</g>").format(title, shape))
        offset += width
    return _svg(CHART_HEIGHT, shapes, name)


def draw_share(
    value: float, largest: float, second: float = 0.0, *, kinds: tuple[str, str] = ("tone-1", "tone-bad")
) -> markupsafe.Markup:
    """Return a bar as SVG: the value relative to the largest one. `second` is the marked part of it."""
    maximum = max(largest, 1e-9)
    length = min(max(value, 0.0) / maximum, 1.0) * CHART_HEIGHT
    marked_length = min(max(second, 0.0) / maximum * CHART_HEIGHT, length)
    shapes = [
        _rect(0, 0, length - marked_length, CHART_HEIGHT, kinds[0]),
        _rect(length - marked_length, 0, marked_length, CHART_HEIGHT, kinds[1]),
    ]
    return _svg(CHART_HEIGHT, shapes, "")


def _rect(x: float, y: float, width: float, height: float, kind: str) -> markupsafe.Markup:
    if width <= 0 or height <= 0:
        return markupsafe.Markup()
    numbers = (_number(x), _number(y), _number(width), _number(height))
    return markupsafe.Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(kind, *numbers)


def _svg(width: float, shapes: Sequence[markupsafe.Markup], name: str) -> markupsafe.Markup:
    label = (
        markupsafe.Markup('role="img" aria-label="{}"').format(name)
        if name
        else markupsafe.Markup('aria-hidden="true"')
    )
    box = f"0 0 {_number(width)} {_number(CHART_HEIGHT)}"
    start = markupsafe.Markup('<svg class="chart" viewBox="{}" preserveAspectRatio="none" focusable="false" {}>')
    return start.format(box, label) + markupsafe.Markup().join(shapes) + markupsafe.Markup("</svg>")


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")
