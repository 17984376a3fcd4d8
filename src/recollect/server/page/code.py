"""Code with its words coloured: Pygments' classes, which conversation.css gives the page's colours."""

from __future__ import annotations

import functools
import html
from typing import Any

from pygments.token import STANDARD_TYPES

CLASSES = frozenset(name for name in STANDARD_TYPES.values() if name)
LONGEST = 60_000
"""Characters up to which code is coloured."""

_MOST_CLASSES = 64


def highlighted(code: str, language: str) -> str:
    """Give code as HTML, coloured where the language is known."""
    lexer = _lexer(language.lower()) if language and len(code) <= LONGEST else None
    if lexer is None:
        return html.escape(code)
    made: list[str] = []
    for kind, text in lexer.get_tokens(code):
        name = _class(kind)
        shown = html.escape(text)
        made.append(f'<span class="{name}">{shown}</span>' if name and text.strip() else shown)
    shown = "".join(made)
    return shown if code.endswith("\n") else shown.removesuffix("\n")


@functools.lru_cache(maxsize=_MOST_CLASSES)
def _lexer(language: str) -> Any:
    from pygments.lexers import get_lexer_by_name  # noqa: PLC0415  most answers have no code
    from pygments.util import ClassNotFound  # noqa: PLC0415

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=True)
    except (ClassNotFound, ImportError, ValueError):
        return None


@functools.cache
def _class(kind: Any) -> str:
    while kind not in STANDARD_TYPES:
        kind = kind.parent
    return STANDARD_TYPES[kind]
