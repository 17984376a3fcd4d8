"""Hits as they are shown: the messages that were found are read together, and of each the piece that shows most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from recollect.model import json
from recollect.model.hit import Hit
from recollect.model.part import Part, ToolResultPart
from recollect.op import Row, Scope, Steps, one, rows
from recollect.ops.search import index
from recollect.ops.search.document import Piece, pieces
from recollect.ops.search.snippet import Excerpt, Needle, excerpt

AT_ONCE = 32
"""Messages that are read together, at most: they can be large."""

Place = tuple[int, int]


class _Message(NamedTuple):
    """A message that was found, and the session in which it is shown."""

    number: int
    role: str
    created: int
    parts: Sequence[Part]
    session: Row


def title(row: Row, score: float, needles: Sequence[Needle]) -> Hit:
    """Show a title."""
    id_, text, channel, archived_at, deleted_at, parent, created = row
    shown = excerpt(text, needles)
    return Hit(
        id_, text, "title", shown.text, shown.marks, -score, created, channel=channel, archived_at=archived_at,
        deleted_at=deleted_at, parent=parent,
    )  # fmt: skip


def messages(
    scope: Scope,
    params: Mapping[str, Any],
    session: Row | None,
    found: Sequence[tuple[float, Place]],
    needles: Sequence[Needle],
) -> Steps[list[Hit | None]]:
    """Show messages, in the session that is given or in one that each is found in; None for one that is in none."""
    read = yield from _read(scope, params, session, [place for _, place in found])
    tools = yield from _tools([place for place, message in read.items() if any(map(_unnamed, message.parts))])
    hits: list[Hit | None] = []
    for score, place in found:
        message = read.get(place)
        if message is None:
            hits.append(None)
            continue
        piece, shown = _shown(list(pieces(message.parts, tools.get(place, {}))), needles)
        hits.append(
            Hit(
                message.session[0], message.session[1], piece.kind, shown.text, shown.marks, -score, message.created,
                f"{message.number}.{place[1]}", message.role, piece.tool, *message.session[2:],
            )
        )  # fmt: skip
    return hits


def _read(
    scope: Scope, params: Mapping[str, Any], session: Row | None, places: Sequence[Place]
) -> Steps[dict[Place, _Message]]:
    read: dict[Place, _Message] = {}
    for branch, position, number, role, created, blobs, parts, suits, *owning in (
        yield from rows("search_hits", hits=json.encode(places), **params)
    ):
        shared: Row | None = session or (tuple(owning) if suits else None)
        if shared is None:  # its own session is left out; one that shares it may not be
            shared = yield from one("search_reaching", branch=branch, position=position, **params)
        if shared is not None:
            whole = yield from index.read_parts(scope, parts, blobs)
            read[branch, position] = _Message(number, role, created, whole, shared)
    return read


def _unnamed(part: Part) -> bool:
    return isinstance(part, ToolResultPart) and not part.tool


def _tools(places: Sequence[Place]) -> Steps[dict[Place, dict[int, str]]]:
    """Name the tools whose results stand in some messages, by the parts that they are."""
    named: dict[Place, dict[int, str]] = {}
    if places:
        for branch, position, part, tool in (
            yield from rows("search_hits_tools", hits=json.encode(places), near=index.NEAR)
        ):
            named.setdefault((branch, position), {})[part] = tool
    return named


def _shown(found: Sequence[Piece], needles: Sequence[Needle]) -> tuple[Piece, Excerpt]:
    """Choose the part of a message that shows most of what was looked for."""
    best: tuple[Piece, Excerpt] | None = None
    for piece in found:
        shown = excerpt(piece.text, needles)
        if best is None or shown.found > best[1].found:
            best = piece, shown
    return best or (Piece("text", "", None, 0), Excerpt("", (), 0))
