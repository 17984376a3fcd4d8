"""The table and the plot of peers.py: every figure as a ratio to the limit that was measured in the same run."""

from __future__ import annotations

from typing import Any

LIMIT, POSTGRES_LIMIT = "raw-apsw", "raw-psycopg"
FIGURES = (
    ("append_us", "keep a turn", False),
    ("growth", "last tenth / first tenth", None),
    ("tasks_per_second", "64 tasks, turns/s", True),
    ("processes_per_second", "4 processes, turns/s", True),
    ("load_1000_us", "load 1,000", False),
    ("load_10000_us", "load 10,000", False),
    ("last_us", "last 50", False),
    ("list_us", "list 50 (ms)", None),
    ("search_us", "search (ms)", None),
    ("bytes_per_message", "bytes/message", False),
    ("import_ms", "import (ms)", None),
    ("peak_kb", "memory (MB)", None),
)
_PLAIN = {"list_us": 1e-3, "search_us": 1e-3, "import_ms": 1.0, "peak_kb": 1 / 1024, "growth": 1.0}
_LABEL, _BAR, _ROW, _WIDTH = 190, 420, 22, 700


def limit_of(name: str) -> str:
    """Name the limit that a contender is compared with."""
    return POSTGRES_LIMIT if name.endswith(("postgres", "psycopg")) else LIMIT


def ratio(results: dict[str, Any], name: str, key: str) -> float | None:
    """Give a figure as a ratio to the limit; where more is better, too."""
    own, limit = results[name].get(key), results.get(limit_of(name), {}).get(key)
    return own / limit if own and limit else None


def cell(results: dict[str, Any], name: str, key: str) -> str:
    """Write one figure."""
    if key == "processes_per_second" and results[name].get("processes_failed"):
        return "fails"
    value = results[name].get(key)
    if value is None:
        return ""
    if key in _PLAIN:
        return f"{value * _PLAIN[key]:.1f}"
    compared = ratio(results, name, key)
    return f"{compared:.2f}" if compared is not None else f"({value:.0f})"


def table(results: dict[str, Any]) -> str:
    """Write the table, with how durable a turn is for each."""
    keys = [key for key, _, _ in FIGURES]
    heads = ["", *(title for _, title, _ in FIGURES), "durable by"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for name, found in results.items():
        cells = [cell(results, name, key) for key in keys]
        lines.append("| " + " | ".join((name, *cells, found.get("durability") or "")) + " |")
    return "\n".join(lines)


def plot(results: dict[str, Any], path: str) -> None:
    """Draw how long keeping a turn and loading a conversation take, as bars on a scale of powers of ten."""
    import math  # noqa: PLC0415

    parts: list[str] = []
    y = 30
    large = any(found.get("load_10000_us") for found in results.values())
    load = ("load_10000_us", "Loading 10,000 messages") if large else ("load_1000_us", "Loading 1,000 messages")
    for key, title in (("append_us", "Keeping a turn"), load):
        parts.append(f'<text x="0" y="{y}" class="head">{title}, against the limit (less is better)</text>')
        y += 12
        for name in results:
            value = ratio(results, name, key)
            if value is None:
                continue
            length = max(math.log10(max(value, 0.1)) + 1, 0.03) / 3.5 * _BAR
            kind = "ours" if name.startswith("recollect") else "bar"
            parts.append(f'<text x="{_LABEL - 8}" y="{y + 15}" text-anchor="end">{name}</text>')
            parts.append(f'<rect x="{_LABEL}" y="{y + 3}" width="{length:.0f}" height="{_ROW - 7}" class="{kind}"/>')
            parts.append(f'<text x="{_LABEL + length + 6:.0f}" y="{y + 15}">{value:.2f}</text>')
            y += _ROW
        y += 34
    style = (
        "text{font:13px system-ui,sans-serif;fill:#333}.head{font-weight:600}.bar{fill:#b9b8b2}.ours{fill:#2a6a59}"
        "rect.page{fill:#fff}"
    )
    with open(path, "w", encoding="utf-8") as file:
        file.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" width="{_WIDTH}" height="{y}">'
            f"<style>{style}</style>"
            f'<rect class="page" width="{_WIDTH}" height="{y}"/>{"".join(parts)}</svg>\n'
        )
