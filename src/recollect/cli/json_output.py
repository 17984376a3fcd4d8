"""JSON on standard output, in ASCII: every terminal and locale accepts it, and it cannot control a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click


def print_json(value: Any) -> None:
    """Print a value."""
    click.echo(_encode(value))


def print_page(name: str, items: Iterable[Any], next: str | None) -> None:
    """Print a page of a list, with the cursor of the next page."""
    print_json({name: [to_plain(item) for item in items], "next": next})


def print_object_with_list(fields: dict[str, Any], name: str, items: Iterable[Any]) -> None:
    """Print an object whose last field is a long list, item by item, in constant memory."""
    head = _encode(fields).removesuffix("\n}")
    click.echo(f'{head},\n  "{name}": [', nl=False)
    first = True
    for item in items:
        text = _encode(to_plain(item)).replace("\n", "\n    ")
        click.echo(f"{'' if first else ','}\n    {text}", nl=False)
        first = False
    click.echo("]\n}" if first else "\n  ]\n}")


def to_plain(item: Any) -> Any:
    """Return a value as plain data, with times in ISO 8601."""
    return item.to_dict() if hasattr(item, "to_dict") else item


def _encode(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=True).replace("\x7f", "\\u007f")
