"""The tables and the plot of peers.py: values as ratios to the limit in the same round."""

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
"""Values that need the long conversation, which a slow store may fail to prepare in time."""
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
"""Values that are printed as absolute values, not as ratios."""
TABLES = (
    (
        "Writing",
        (
            ("append_us", "store a turn"), ("growth", "at 10,000 messages / new"),
            ("tasks_per_second", "64 tasks, turns per second"),
            ("processes_per_second", "4 processes, turns per second"), ("longest_ms", "longest turn, 4 processes (ms)"),
        ),
        (("durability", "durability"), ("tasks", "the 64 tasks share")),
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
PICTURE = "![Storing a turn, 64 concurrent tasks, and loading a conversation](../images/benchmarks.svg)"
PLOTS = (
    ("append_us", "Storing a turn: time relative to the limit (lower is better)"),
    ("tasks_per_second", "64 concurrent tasks: turns per second relative to one raw connection (higher is better)"),
    ("load_10000_us", "Loading 10,000 messages: time relative to the limit (lower is better)"),
)
BEGIN, END = "<!-- table -->", "<!-- end -->"
_LABEL, _BAR, _ROW, _WIDTH = 190, 420, 22, 700


def limit_of(name: str) -> str:
    """Return the name of the limit with which a contender is compared."""
    return POSTGRES_LIMIT if name.endswith(("postgres", "psycopg", "asyncpg-pool")) else LIMIT


def values(results: dict[str, Any], name: str, key: str) -> list[float | None]:
    """Return a value of each round; one that is measured once per run is returned once."""
    contender = results["contenders"].get(name, {"once": {}, "rounds": []})
    if key in contender["once"]:
        return [contender["once"][key]]
    return [values_of_round.get(key) for values_of_round in contender["rounds"]]


def median(numbers: list[float | None]) -> float | None:
    """Return the median of the numbers that are not None."""
    present = [number for number in numbers if number is not None]
    return statistics.median(present) if present else None


def ratio(results: dict[str, Any], name: str, key: str) -> float | None:
    """Return the median of the ratios to the limit in the same round."""
    own, limit = values(results, name, key), values(results, limit_of(name), key)
    return median([a / b if a and b else None for a, b in zip(own, limit, strict=False)])


def cell(results: dict[str, Any], name: str, key: str) -> str:
    """Format one value; for a limit, also the absolute value of 1.00."""
    contender = results["contenders"][name]
    if any(values_of_round.get(f"{WORK_OF.get(key)}_error") for values_of_round in contender["rounds"]):
        return "fails"
    value = median(values(results, name, key))
    if value is None:
        time_limit = contender["over"].get(WORK_OF.get(key, "")) or (key in LONG and contender["over"].get("build"))
        return f"over {time_limit:.0f} s" if time_limit else ""
    factor, unit = UNITS[key]
    number = format_number(value * factor)
    if key in PLAIN:
        message_count = contender["once"].get("bytes_at") or 0
        return f"{number} (at {message_count:,})" if key == "bytes_per_message" and message_count < 10_000 else number
    relative = ratio(results, name, key)
    if relative is None:
        return f"({number} {unit})"
    return f"{relative:.2f} ({number} {unit})" if limit_of(name) == name else f"{relative:.2f}"


def format_number(value: float) -> str:
    """Format a number with about three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(results: dict[str, Any], value_columns: Any, text_columns: Any) -> str:
    """Format a table; contenders without any value are omitted."""
    titles = ["", *(title for _, title in value_columns), *(title for _, title in text_columns)]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for name, contender in results["contenders"].items():
        cells = [cell(results, name, key) for key, _ in value_columns]
        if any(cells):
            label = f"**{name}**" if name.startswith("recollect") else name
            lines.append(
                "| "
                + " | ".join((label, *cells, *(contender["once"].get(key) or "" for key, _ in text_columns)))
                + " |"
            )
    return "\n".join(lines)


def report(results: dict[str, Any]) -> str:
    """Format the machine, the rounds, the tables and the versions."""
    rounds = max((len(contender["rounds"]) for contender in results["contenders"].values()), default=0)
    versions = ", ".join(f"{name} {version}" for name, version in sorted(results["versions"].items()))
    load = results["load"]
    duration = f"duration {results.get('took', 0) / 60:.0f} minutes"
    progress = f"Started {results['begun']}, {duration}, {rounds} of {results['rounds']} rounds"
    load_average = f"load average {min(load, default=0)} to {max(load, default=0)}"
    parts = [f"{progress} ({results['ended']}); {results['machine']}; {load_average}."]
    for title, value_columns, text_columns in TABLES:
        parts += [f"### {title}", table(results, value_columns, text_columns)]
    return "\n\n".join([*parts, f"Versions: {versions}."])


def write(results: dict[str, Any], path: str) -> None:
    """Write the picture and the tables between their markers in the page."""
    with open(path, encoding="utf-8") as file:
        page = file.read()
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{begin}\n\n{PICTURE}\n\n{report(results)}\n\n{end}{after}")


def bars(results: dict[str, Any], key: str, y: int) -> tuple[list[str], int]:
    """Draw the bars of a value on a logarithmic scale, with a line at the limit."""
    ratios = {name: ratio(results, name, key) for name in results["contenders"]}
    present = {name: value for name, value in ratios.items() if value}
    if not present:
        return [], y
    low = math.floor(math.log10(min(*present.values(), 0.5)))
    high = math.log10(max(*present.values(), 2.0))

    def x_position(value: float) -> float:
        return _LABEL + (math.log10(value) - low) / (high - low) * _BAR

    parts: list[str] = []
    top = y
    for name, value in present.items():
        kind = "ours" if name.startswith("recollect") else "limit" if name.startswith(("raw", "jsonl")) else "bar"
        end = max(x_position(value), _LABEL + 2)
        parts.append(f'<text x="{_LABEL - 8}" y="{y + 15}" text-anchor="end">{name}</text>')
        parts.append(f'<rect x="{_LABEL}" y="{y + 3}" width="{end - _LABEL:.0f}" height="{_ROW - 7}" class="{kind}"/>')
        parts.append(f'<text x="{end + 6:.0f}" y="{y + 15}" class="value">{value:.2f}</text>')
        y += _ROW
    line = f'<line x1="{x_position(1):.0f}" x2="{x_position(1):.0f}" y1="{top}" y2="{y}"/>'
    return [line, *parts], y


def plot(results: dict[str, Any], path: str) -> None:
    """Draw the values of PLOTS as bar charts and write an SVG file."""
    parts: list[str] = []
    y = 26
    for key, title in PLOTS:
        elements, bottom = bars(results, key, y + 10)
        if elements:
            parts += [f'<text x="12" y="{y}" class="head">{title}</text>', *elements]
            y = bottom + 36
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
