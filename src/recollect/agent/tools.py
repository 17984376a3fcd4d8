"""The tools that every talk has: the time, a calculator, and search in this store. A tool is a plain function.

Its name is the function's, its description the docstring's, its arguments the signature's. It may be async. What it
returns goes to the model, and an exception goes to the model as a failure: it never ends the talk.
"""

from __future__ import annotations

import asyncio
import datetime
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from recollect.agent import arithmetic
from recollect.model.value import iso

if TYPE_CHECKING:
    from recollect.store_async import AsyncStore

Tool = Callable[..., Any]
_FOUND = 5


def current_time() -> str:
    """Give the current date and time, with the time zone of this machine."""
    return datetime.datetime.now().astimezone().strftime("%A, %d %B %Y, %H:%M:%S %Z (UTC%z)")


def calculate(expression: str) -> str:
    """Work out arithmetic exactly: + - * / // % **, parentheses, sqrt, round, min, max, pi."""
    return arithmetic.calculate(expression)


def built_in(store: AsyncStore, session: str, within: str | None = None) -> list[Tool]:
    """Give the tools of a talk in a session of this store; what is said there, the model knows without a search.

    `within` limits the search to one session, for a talk whose people must not read what others said.
    """

    async def search_conversations(query: str) -> str:
        """Search everything that was said in earlier conversations, and give the places that fit best."""
        return await found(store, query, besides=None if within else session, within=within)

    return [current_time, calculate, search_conversations]


async def found(
    store: AsyncStore, query: str, limit: int = _FOUND, *, besides: str | None = None, within: str | None = None
) -> str:
    """Search the store and write what was found, one place on each line."""
    hits = [hit for hit in await store.search(query, limit=limit * 4, session=within) if hit.session != besides][:limit]
    lines = [f"- {hit.title or hit.session} ({_place(hit)}): {_line(hit.text)}" for hit in hits]
    return "\n".join(lines) or f"Nothing was found for {query!r}."


def _place(hit: Any) -> str:
    """Say where a hit is; the hit of a title has neither a speaker nor a message."""
    pieces = (iso(hit.created_at)[:10], hit.role or "title", f"{hit.session} {hit.message or ''}".strip())
    return ", ".join(pieces)


def _line(text: str, longest: int = 300) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "\u2026"


async def call(tool: Tool, arguments: dict[str, Any]) -> Any:
    """Run a tool with the arguments that a model gave; one that is not async runs in a thread, beside the talk."""
    if inspect.iscoroutinefunction(tool):
        return await tool(**arguments)
    return await asyncio.to_thread(tool, **arguments)
