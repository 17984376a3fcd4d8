"""Answers, and what requests say in their headers: revisions as ETags, keys, pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from litestar import Request, Response
from litestar.datastructures import FormMultiDict
from litestar.exceptions import ClientException
from litestar.params import HeaderParameter, PathParameter, QueryParameter

from recollect.errors import InvalidValue, StaleRevision
from recollect.model import json
from recollect.model.session import Session as Info
from recollect.server.account import Account
from recollect.server.names import session_id
from recollect.store_async import AsyncSession

T = TypeVar("T")

SessionPath = Annotated[
    str,
    PathParameter(description="The session's id, percent-encoded whole, slashes too.", min_length=1),
]
MessagePath = Annotated[str, PathParameter(description="The message's id, `branch.position`.")]
Key = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        description="The same request with the same key is carried out once. Other content under it is `key-reused`.",
    ),
]
IfMatch = Annotated[
    str | None,
    HeaderParameter(name="If-Match", description="The revision (ETag) that the session must have, else 412."),
]
IfNoneMatch = Annotated[
    str | None,
    HeaderParameter(name="If-None-Match", description="The ETag that the client has; 304 if it still holds."),
]
Limit = Annotated[int, QueryParameter(ge=1, le=1000, description="How many to give at most.")]
After = Annotated[str | None, QueryParameter(description="Where to go on: the `next` of the page before.")]

_MESSAGE = re.compile(r"[0-9]{1,10}\.[0-9]{1,10}", re.ASCII)
_TAG = re.compile(r'(?:W/)?"?([0-9]{1,18})"?', re.ASCII)


class ExactRequest(Request[Any, Any, Any]):
    """A request whose JSON is read as the store reads it: half of a surrogate pair and large numbers come through."""

    async def json(self) -> Any:
        """Read the body."""
        try:
            return json.decode(await self.body() or b"null")
        except (ValueError, RecursionError) as error:
            raise ClientException(f"The body is not JSON: {str(error)[:200]}.") from error

    async def form(self) -> FormMultiDict:
        """Read a form. A field in another encoding than it says, or in one that is not known, is the sender's fault."""
        try:
            return await super().form()
        except (UnicodeError, LookupError) as error:
            raise ClientException(
                "A field of this form is not text in the encoding that it says (or UTF-8)."
            ) from error


def told(plain: Any, status: int = 200, *, revision: int | None = None, **headers: str) -> Response[Any]:
    """Answer with plain data as JSON."""
    if revision is not None:
        headers["ETag"] = f'"{revision}"'
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(body(plain), status_code=status, headers=named, media_type="application/json")


def body(plain: Any) -> bytes:
    """Write JSON that any client can read."""
    return json.standard(plain).encode()


def unchanged(revision: int) -> Response[Any]:
    """Say that a client has the newest already."""
    return Response(None, status_code=304, headers={"ETag": f'"{revision}"'})


def expected(tag: str | None) -> int | None:
    """Read the revision that a change is meant for."""
    if tag is None or tag.strip() == "*":
        return None
    found = _TAG.fullmatch(tag.strip())
    if found is None:
        raise InvalidValue(f'If-Match is a revision, such as "17"; got {tag!r}.')
    return int(found.group(1))


def has(tag: str | None, revision: int) -> bool:
    """Whether a client has this revision already."""
    return tag is not None and any(
        (found := _TAG.fullmatch(piece.strip())) is not None and int(found.group(1)) == revision
        for piece in tag.split(",")
    )


def message_id(text: str) -> str:
    """Give a message's id back if it can be one."""
    if _MESSAGE.fullmatch(text) is None:
        raise InvalidValue(f"{text[:80]!r} is no message id. An id looks like '1.17': branch and position.")
    return text


async def found(account: Account, session: str) -> AsyncSession:
    """Give the session of a path; its activity is not touched. One that is not there, or in the trash, is an error."""
    return await account.session(session_id(session))


async def matching(account: Account, session: str, tag: str | None) -> AsyncSession:
    """Give the session of a path if it is at the revision that the change is meant for."""
    opened, wanted = await found(account, session), expected(tag)
    if wanted is not None and opened.revision != wanted:
        raise StaleRevision(session=opened.id, revision=opened.revision, expected=wanted)
    return opened


def session_plain(account: Account, info: Info) -> dict[str, Any]:
    """Write a session as it is answered."""
    return {**info.to_dict(), "running": account.talks.running(info.id)}


def page(items: Sequence[T], name: Callable[[T], str], limit: int, after: str | None) -> tuple[list[T], str | None]:
    """Take a page out of a whole list: what follows the item of a name, and the name of its last one."""
    start = 0
    if after is not None:
        start = next((at for at, item in enumerate(items, 1) if name(item) == after), -1)
        if start < 0:
            raise InvalidValue(f"There is no item {after[:80]!r} to go on after. Begin again without it.")
    chosen = list(items[start : start + limit])
    return chosen, name(chosen[-1]) if start + limit < len(items) and chosen else None
