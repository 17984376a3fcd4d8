"""Charts, drawn as SVG: bars over time, bars side by side, one bar in pieces.

No colour is in them: classes say what a shape stands for, and figures.css gives it its colour in each theme. A drawing
is stretched to the width that it gets, so no text is in it: labels are beside it in HTML, in the type of the page. A
shape says in its title what it stands for, which a pointer shows, and in a table that everyone can open.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NamedTuple

import markupsafe

HEIGHT = 100.0
_MOST_DAYS, _MOST_WEEKS = 92, 92
_GAP = 0.18
_NICE = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_LEAST = 0.6


class Series(NamedTuple):
    """Values of one kind, and the class that their shapes have."""

    label: str
    kind: str
    values: Sequence[float]


class Period(NamedTuple):
    """A stretch of days that is one column: how it is called, and its first and last day."""

    label: str
    first: datetime.date
    last: datetime.date


def periods(first: datetime.date, last: datetime.date) -> list[Period]:
    """Cut a time into columns: days, or weeks where these were too many, or months."""
    days = (last - first).days + 1
    if days <= _MOST_DAYS:
        return [_day(first + datetime.timedelta(days=at)) for at in range(max(days, 0))]
    if days <= _MOST_WEEKS * 7:
        begun = first - datetime.timedelta(days=first.weekday())
        return [_week(begun + datetime.timedelta(days=at)) for at in range(0, (last - begun).days + 1, 7)]
    made: list[Period] = []
    month = first.replace(day=1)
    while month <= last:
        following = (month.replace(day=28) + datetime.timedelta(days=4)).replace(day=1)
        made.append(Period(f"{month:%B} {month.year}", month, following - datetime.timedelta(days=1)))
        month = following
    return made


def _day(day: datetime.date) -> Period:
    return Period(f"{day:%a} {day.day} {day:%b} {day.year}", day, day)


def _week(day: datetime.date) -> Period:
    return Period(f"Week of {day.day} {day:%b} {day.year}", day, day + datetime.timedelta(days=6))


def gathered(values: dict[datetime.date, float], columns: Sequence[Period]) -> list[float]:
    """Add up what belongs to each column; a day without a value counts as nothing."""
    sums = [0.0] * len(columns)
    if not columns:
        return sums
    at = 0
    for day in sorted(values):
        if day < columns[0].first:
            continue
        while at < len(columns) and columns[at].last < day:
            at += 1
        if at == len(columns):
            break
        sums[at] += values[day]
    return sums


def top(values: Sequence[float]) -> float:
    """Give the round number that the scale ends with, not below the greatest value."""
    most = max(values, default=0.0)
    if most <= 0:
        return 1.0
    power = 1.0
    while power * 10 <= most:
        power *= 10
    while power > most:
        power /= 10
    return next(nice * power for nice in _NICE if nice * power >= most - 1e-9)


def columns(labels: Sequence[str], series: Sequence[Series], told: Sequence[str], *, name: str) -> markupsafe.Markup:
    """Draw a column for each label, the series on top of one another. `told` is what each column's title says."""
    totals = [sum(values) for values in zip(*(one.values for one in series), strict=True)]
    scale = HEIGHT / top(totals)
    shapes: list[markupsafe.Markup] = []
    for at in range(len(labels)):
        level = HEIGHT
        parts: list[markupsafe.Markup] = []
        for one in series:
            tall = one.values[at] * scale
            tall = max(tall, _LEAST) if one.values[at] > 0 else 0.0
            level -= tall
            parts.append(_rect(at + _GAP / 2, level, 1 - _GAP, tall, one.kind))
        title = markupsafe.Markup("<title>{}</title>").format(told[at])
        hit = _rect(at, 0, 1, HEIGHT, "chart-reach")
        shapes.append(
            markupsafe.Markup('<g class="chart-column">{}{}{}</g>').format(title, hit, markupsafe.Markup().join(parts))
        )
    return _svg(max(len(labels), 1), shapes, name)


def bar(parts: Sequence[tuple[float, str, str]], *, name: str) -> markupsafe.Markup:
    """Draw one bar in pieces: how much each is, its class, and what its title says."""
    total = sum(max(value, 0.0) for value, _, _ in parts) or 1.0
    shapes: list[markupsafe.Markup] = []
    at = 0.0
    for value, kind, title in parts:
        wide = max(value, 0.0) / total * HEIGHT
        shape = _rect(at, 0, wide, HEIGHT, kind)
        shapes.append(markupsafe.Markup("<g><title>{}</title>{}</g>").format(title, shape))
        at += wide
    return _svg(HEIGHT, shapes, name)


def share(
    value: float, most: float, second: float = 0.0, *, kinds: tuple[str, str] = ("tone-1", "tone-bad")
) -> markupsafe.Markup:
    """Draw a bar that is as long as a value is of the greatest one; `second` is the part of it that is marked."""
    of = max(most, 1e-9)
    long = min(max(value, 0.0) / of, 1.0) * HEIGHT
    marked = min(max(second, 0.0) / of * HEIGHT, long)
    shapes = [_rect(0, 0, long - marked, HEIGHT, kinds[0]), _rect(long - marked, 0, marked, HEIGHT, kinds[1])]
    return _svg(HEIGHT, shapes, "")


def _rect(x: float, y: float, width: float, height: float, kind: str) -> markupsafe.Markup:
    if width <= 0 or height <= 0:
        return markupsafe.Markup()
    numbers = (_number(x), _number(y), _number(width), _number(height))
    return markupsafe.Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(kind, *numbers)


def _svg(width: float, shapes: Sequence[markupsafe.Markup], name: str) -> markupsafe.Markup:
    said = (
        markupsafe.Markup('role="img" aria-label="{}"').format(name)
        if name
        else markupsafe.Markup('aria-hidden="true"')
    )
    box = f"0 0 {_number(width)} {_number(HEIGHT)}"
    start = markupsafe.Markup('<svg class="chart" viewBox="{}" preserveAspectRatio="none" focusable="false" {}>')
    return start.format(box, said) + markupsafe.Markup().join(shapes) + markupsafe.Markup("</svg>")


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")
