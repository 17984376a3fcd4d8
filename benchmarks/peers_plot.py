"""The tables and the plot of peers.py: figures as ratios to the limit that was measured in the same round."""

from __future__ import annotations

import math
import statistics
from typing import Any

LIMIT, POSTGRES_LIMIT = "raw-apsw", "raw-psycopg"
WORK_OF = {
    "append_us": "append", "growth": "append", "tasks_per_second": "together", "processes_per_second": "processes",
    "longest_ms": "processes", "load_1000_us": "load", "load_10000_us": "load", "last_us": "load", "peak_kb": "load",
    "list_us": "find",
}  # fmt: skip
UNITS = {
    "append_us": (1e-3, "ms"), "load_1000_us": (1e-3, "ms"), "load_10000_us": (1e-3, "ms"), "last_us": (1e-3, "ms"),
    "list_us": (1e-3, "ms"), "search_us": (1e-3, "ms"), "import_ms": (1, "ms"), "peak_kb": (1 / 1024, "MB"),
    "tasks_per_second": (1, "/s"), "processes_per_second": (1, "/s"), "longest_ms": (1, "ms"), "growth": (1, ""),
    "bytes_per_message": (1, ""), "bytes_with_index": (1, ""),
}  # fmt: skip
LONG = ("growth", "load_1000_us", "load_10000_us", "last_us", "peak_kb")
"""Figures that need the long conversation, which a store may take too long to take in."""
PLAIN = (
    "growth",
    "longest_ms",
    "list_us",
    "search_us",
    "import_ms",
    "peak_kb",
    "bytes_per_message",
    "bytes_with_index",
)
"""Figures that are written as they are, not as ratios."""
TABLES = (
    (
        "Writing",
        (
            ("append_us", "keep a turn"), ("growth", "at 10,000 messages / new"),
            ("tasks_per_second", "64 tasks, turns per second"),
            ("processes_per_second", "4 processes, turns per second"), ("longest_ms", "longest turn of the 4 (ms)"),
        ),
        (("durability", "durable by"), ("tasks", "the 64 tasks share")),
    ),
    (
        "Reading",
        (
            ("load_1000_us", "load 1,000 messages"), ("load_10000_us", "load 10,000"), ("last_us", "last 50 of 10,000"),
            ("list_us", "list 50 of 1,000 (ms)"), ("search_us", "search (ms)"),
        ),
        (),
    ),
    (
        "Size",
        (
            ("bytes_per_message", "bytes per message"), ("bytes_with_index", "with the search index"),
            ("import_ms", "import (ms)"), ("peak_kb", "memory (MB)"),
        ),
        (),
    ),
)  # fmt: skip
PICTURE = "![Keeping a turn, 64 tasks at once, and loading a conversation](benchmarks.svg)"
PLOTS = (
    ("append_us", "Keeping a turn: time against the limit (less is better)"),
    ("tasks_per_second", "64 tasks at once: turns per second against one raw connection (more is better)"),
    ("load_10000_us", "Loading 10,000 messages: time against the limit (less is better)"),
)
BEGIN, END = "<!-- table -->", "<!-- end -->"
_LABEL, _BAR, _ROW, _WIDTH = 190, 420, 22, 700


def limit_of(name: str) -> str:
    """Name the limit that a contender is compared with."""
    return POSTGRES_LIMIT if name.endswith(("postgres", "psycopg", "asyncpg-pool")) else LIMIT


def values(found: dict[str, Any], name: str, key: str) -> list[float | None]:
    """Give a figure of each round; one that is measured once is the same in all."""
    one = found["contenders"].get(name, {"once": {}, "rounds": []})
    if key in one["once"]:
        return [one["once"][key]]
    return [measured.get(key) for measured in one["rounds"]]


def median(numbers: list[float | None]) -> float | None:
    """Give the median of those that are there."""
    there = [number for number in numbers if number is not None]
    return statistics.median(there) if there else None


def ratio(found: dict[str, Any], name: str, key: str) -> float | None:
    """Give the median of the ratios to the limit, round by round."""
    own, limit = values(found, name, key), values(found, limit_of(name), key)
    return median([a / b if a and b else None for a, b in zip(own, limit, strict=False)])


def cell(found: dict[str, Any], name: str, key: str) -> str:
    """Write one figure; a limit says what its 1.00 stands for."""
    one = found["contenders"][name]
    if any(measured.get(f"{WORK_OF.get(key)}_error") for measured in one["rounds"]):
        return "fails"
    value = median(values(found, name, key))
    if value is None:
        over = one["over"].get(WORK_OF.get(key, "")) or (key in LONG and one["over"].get("build"))
        return f"over {over:.0f} s" if over else ""
    factor, unit = UNITS[key]
    written = figure(value * factor)
    if key in PLAIN:
        at = one["once"].get("bytes_at") or 0
        return f"{written} (at {at:,})" if key == "bytes_per_message" and at < 10_000 else written
    compared = ratio(found, name, key)
    if compared is None:
        return f"({written} {unit})"
    return f"{compared:.2f} ({written} {unit})" if limit_of(name) == name else f"{compared:.2f}"


def figure(value: float) -> str:
    """Write a number with about three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(found: dict[str, Any], figures: Any, words: Any) -> str:
    """Write a table; contenders without any figure of it are left out."""
    heads = ["", *(title for _, title in figures), *(title for _, title in words)]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for name, one in found["contenders"].items():
        cells = [cell(found, name, key) for key, _ in figures]
        if any(cells):
            label = f"**{name}**" if name.startswith("recollect") else name
            lines.append("| " + " | ".join((label, *cells, *(one["once"].get(key) or "" for key, _ in words))) + " |")
    return "\n".join(lines)


def report(found: dict[str, Any]) -> str:
    """Write what was measured, on what, and how much of it."""
    rounds = max((len(one["rounds"]) for one in found["contenders"].values()), default=0)
    kept = ", ".join(f"{name} {version}" for name, version in sorted(found["versions"].items()))
    load = found["load"]
    begun = f"Begun {found['begun']}, {found.get('took', 0) / 60:.0f} minutes, {rounds} of {found['rounds']} rounds"
    busy = f"load of the machine {min(load, default=0)} to {max(load, default=0)}"
    parts = [f"{begun} ({found['ended']}); {found['machine']}; {busy}."]
    for title, figures, words in TABLES:
        parts += [f"### {title}", table(found, figures, words)]
    return "\n\n".join([*parts, f"Versions: {kept}."])


def write(found: dict[str, Any], path: str) -> None:
    """Put the picture and the tables between their marks in the page."""
    with open(path, encoding="utf-8") as file:
        page = file.read()
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{begin}\n\n{PICTURE}\n\n{report(found)}\n\n{end}{after}")


def bars(found: dict[str, Any], key: str, y: int) -> tuple[list[str], int]:
    """Draw the bars of a figure on a scale of powers of ten, with a line at the limit."""
    shown = {name: ratio(found, name, key) for name in found["contenders"]}
    there = {name: value for name, value in shown.items() if value}
    if not there:
        return [], y
    low = math.floor(math.log10(min(*there.values(), 0.5)))
    high = math.log10(max(*there.values(), 2.0))

    def across(value: float) -> float:
        return _LABEL + (math.log10(value) - low) / (high - low) * _BAR

    parts: list[str] = []
    top = y
    for name, value in there.items():
        kind = "ours" if name.startswith("recollect") else "limit" if name.startswith(("raw", "jsonl")) else "bar"
        end = max(across(value), _LABEL + 2)
        parts.append(f'<text x="{_LABEL - 8}" y="{y + 15}" text-anchor="end">{name}</text>')
        parts.append(f'<rect x="{_LABEL}" y="{y + 3}" width="{end - _LABEL:.0f}" height="{_ROW - 7}" class="{kind}"/>')
        parts.append(f'<text x="{end + 6:.0f}" y="{y + 15}" class="value">{value:.2f}</text>')
        y += _ROW
    line = f'<line x1="{across(1):.0f}" x2="{across(1):.0f}" y1="{top}" y2="{y}"/>'
    return [line, *parts], y


def plot(found: dict[str, Any], path: str) -> None:
    """Draw the figures that people ask for first."""
    parts: list[str] = []
    y = 26
    for key, title in PLOTS:
        drawn, below = bars(found, key, y + 10)
        if drawn:
            parts += [f'<text x="12" y="{y}" class="head">{title}</text>', *drawn]
            y = below + 36
    style = (
        "text{font:13px system-ui,sans-serif;fill:#333}.head{font-weight:600}.bar{fill:#b9b8b2}.ours{fill:#2a6a59}"
        ".limit{fill:#dedcd4}"
        ".value{paint-order:stroke;stroke:#fff;stroke-width:4px}line{stroke:#333;stroke-dasharray:2 3}.page{fill:#fff}"
    )
    with open(path, "w", encoding="utf-8") as file:
        file.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" width="{_WIDTH}" height="{y}">'
            f'<style>{style}</style><rect class="page" width="{_WIDTH}" height="{y}"/>{"".join(parts)}</svg>\n'
        )
