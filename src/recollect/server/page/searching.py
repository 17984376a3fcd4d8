"""The search dialog: hits as one types, grouped by session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

from litestar import Request, Response, get

from recollect.model.hit import Hit
from recollect.server.account import Account
from recollect.server.names import piece
from recollect.server.page.clock import Clock, clock_of
from recollect.server.page.naming import UNTITLED, called
from recollect.server.page.template import answer

PAGE = 30
_ROLES = {"user": "You", "assistant": "Agent", "tool": "Tool", "system": "System"}
_KINDS = {
    "title": "Title", "reasoning": "Reasoning", "tool_call": "Tool call", "tool_result": "Tool result",
    "attachment": "Attachment", "data": "Data",
}  # fmt: skip
_DAYS = {"1": 0, "7": 6, "30": 29, "90": 89, "365": 364}

Role = Literal["", "user", "assistant", "tool", "system"]
Since = Literal["", "1", "7", "30", "90", "365"]
Archived = Literal["", "yes", "no"]


class Found(NamedTuple):
    """A hit as it is shown: what it is, the text in pieces that are marked or not, and when it was said."""

    message: str
    titled: bool
    what: str
    pieces: Sequence[tuple[str, bool]]
    ago: str
    exact: str


class Known(NamedTuple):
    """What a hit does not say of its session: what it is called, and how it belongs to its parent."""

    name: str
    relation: str | None


class Place(NamedTuple):
    """The hits in one session."""

    session: str
    piece: str
    title: str
    note: str
    hits: list[Found]


def pieces(hit: Hit) -> list[tuple[str, bool]]:
    """Cut a hit's text at its marks."""
    made: list[tuple[str, bool]] = []
    at = 0
    for low, high in hit.marks:
        made += [(hit.text[at:low], False), (hit.text[low:high], True)]
        at = high
    made.append((hit.text[at:], False))
    return [(text, marked) for text, marked in made if text]


async def looked_up(account: Account, hits: Sequence[Hit]) -> dict[str, Known]:
    """Read of the sessions that have no title, or a parent, what they are; one that is gone meanwhile is left out."""
    wanting = list(dict.fromkeys(hit.session for hit in hits if hit.parent or not hit.title))
    found = await asyncio.gather(*(account.store.get_session(id) for id in wanting))
    living = [session.info for session in found if session is not None]
    names = await asyncio.gather(*(called(account.store, info) for info in living))
    return {info.id: Known(name, info.relation) for info, name in zip(living, names, strict=True)}


def places(hits: Sequence[Hit], clock: Clock, known: Mapping[str, Known]) -> list[Place]:
    """Group hits by session, in the order of each session's best hit."""
    made: dict[str, Place] = {}
    for hit in hits:
        if hit.session not in made:
            name, relation = known.get(hit.session, Known(hit.title or UNTITLED, None))
            belongs = {"fork": "fork", "delegate": "sub-agent"}.get(relation or "", "")
            notes = [hit.channel or "", "archived" if hit.archived_at else "", belongs]
            note = " · ".join(note for note in notes if note)
            made[hit.session] = Place(hit.session, piece(hit.session), name, note, [])
        made[hit.session].hits.append(
            Found(
                hit.message or "",
                hit.kind == "title",
                _what(hit),
                pieces(hit),
                clock.ago(hit.created_at),
                clock.exact(hit.created_at),
            )
        )
    return list(made.values())


def _what(hit: Hit) -> str:
    """Say whose words these are, or what they are where nobody said them."""
    kind = _KINDS.get(hit.kind)
    if hit.tool and kind:
        return f"{kind}, {hit.tool}"
    return kind or _ROLES.get(hit.role or "", hit.role or "")


@get("/page/search", include_in_schema=False)
async def search(
    request: Request[Any, Any, Any],
    account: Account,
    q: str = "",
    after: str | None = None,
    role: Role = "",
    channel: str = "",
    tool: str = "",
    model: str = "",
    since: Since = "",
    archived: Archived = "",
    delegates: bool = False,
) -> Response[str]:
    """Give a page of hits."""
    clock = clock_of(request.cookies)
    found = await account.store.search(
        q, PAGE, after=after, role=role or None, channel=channel or None, tool=tool or None, model=model or None,
        since=clock.midnight(_DAYS[since]) if since else None, archived={"": None, "yes": True, "no": False}[archived],
        delegates=delegates,
    )  # fmt: skip
    more = ""
    if found.next is not None:
        asked = {"q": q, "role": role, "channel": channel, "tool": tool, "model": model, "since": since,
                 "archived": archived, "delegates": str(delegates).lower(), "after": found.next}  # fmt: skip
        more = "/page/search?" + urlencode(asked)
    return answer(
        "hits.html",
        places=places(found, clock, await looked_up(account, found)),
        more=more,
        first=after is None,
        query=q,
        hindered=found.hindered,
    )


ROUTES: list[Any] = [search]
