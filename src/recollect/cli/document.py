"""JSON on standard output, in ASCII: any terminal and any locale can take it, and it can not steer one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click


def print_json(value: Any) -> None:
    """Print a value."""
    click.echo(_text(value))


def print_page(name: str, items: Iterable[Any], next: str | None) -> None:
    """Print a page of a list: what is in it, and where the next one begins."""
    print_json({name: [plain(item) for item in items], "next": next})


def print_with(fields: dict[str, Any], name: str, items: Iterable[Any]) -> None:
    """Print an object whose last field is a long list, item by item, in constant memory."""
    head = _text(fields).removesuffix("\n}")
    click.echo(f'{head},\n  "{name}": [', nl=False)
    first = True
    for item in items:
        text = _text(plain(item)).replace("\n", "\n    ")
        click.echo(f"{'' if first else ','}\n    {text}", nl=False)
        first = False
    click.echo("]\n}" if first else "\n  ]\n}")


def plain(item: Any) -> Any:
    """Give a value of ours as plain data, times as ISO 8601."""
    return item.to_dict() if hasattr(item, "to_dict") else item


def _text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=True).replace("\x7f", "\\u007f")
