"""Responses and request headers of the API: ETags (revisions), idempotency keys, pages of a list."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

from litestar import Request, Response
from litestar.datastructures import FormMultiDict
from litestar.exceptions import ClientException
from litestar.params import HeaderParameter, PathParameter, QueryParameter

from recollect.errors import InvalidValue, StaleRevision
from recollect.model import json
from recollect.model.session import SessionInfo as Info
from recollect.server.account import Account
from recollect.server.path_segments import decode_path_segment
from recollect.store_async import AsyncSession

T = TypeVar("T")

SessionPath = Annotated[
    str,
    PathParameter(
        description="The session's id, percent-encoded including slashes; `~.` and `~..` are `.` and `..`.",
        min_length=1,
    ),
]
MessagePath = Annotated[str, PathParameter(description="The message's id, `branch.position`.")]
IdempotencyKey = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        description="A request repeated with the same key is executed once. A different request with the same key "
        "fails with `key-reused`.",
    ),
]
IfMatch = Annotated[
    str | None,
    HeaderParameter(
        name="If-Match", description="The revision (ETag) that the session must have; otherwise the response is 412."
    ),
]
IfNoneMatch = Annotated[
    str | None,
    HeaderParameter(name="If-None-Match", description="The client's ETag. The response is 304 if it is still current."),
]
Limit = Annotated[int, QueryParameter(ge=1, le=1000, description="Maximum number of items.")]
After = Annotated[str | None, QueryParameter(description="The `next` value of the previous page.")]

_MESSAGE_ID = re.compile(r"[0-9]{1,10}\.[0-9]{1,10}", re.ASCII)
_REVISION_TAG = re.compile(r'(?:W/)?"?([0-9]{1,18})"?', re.ASCII)


class ExactRequest(Request[Any, Any, Any]):
    """A request whose JSON is decoded as the store decodes it: lone surrogates and large numbers are preserved."""

    async def json(self) -> Any:
        """Return the decoded body. Raise ClientException if it is not JSON."""
        try:
            return json.decode(await self.body() or b"null")
        except (ValueError, RecursionError) as error:
            raise ClientException(f"The body must be JSON: {str(error)[:200]}.") from error

    async def form(self) -> FormMultiDict:
        """Return the form fields. Raise ClientException if a field is not in its declared encoding."""
        try:
            return await super().form()
        except (UnicodeError, LookupError) as error:
            raise ClientException("Form fields must be text in their declared encoding, or UTF-8.") from error


def json_response(plain: Any, status: int = 200, *, revision: int | None = None, **headers: str) -> Response[Any]:
    """Return a JSON response. `revision` becomes its ETag."""
    if revision is not None:
        headers["ETag"] = f'"{revision}"'
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(encode_json(plain), status_code=status, headers=header_fields, media_type="application/json")


def encode_json(plain: Any) -> bytes:
    """Encode data as standard JSON."""
    return json.encode_standard(plain).encode()


def not_modified(revision: int) -> Response[Any]:
    """Return a 304 response."""
    return Response(None, status_code=304, headers={"ETag": f'"{revision}"'})


def expected_revision(tag: str | None) -> int | None:
    """Return the revision of an If-Match header, or None. Raise InvalidValue if it is malformed."""
    if tag is None or tag.strip() == "*":
        return None
    match = _REVISION_TAG.fullmatch(tag.strip())
    if match is None:
        raise InvalidValue(f'If-Match must be a revision, such as "17", got {tag!r}.')
    return int(match.group(1))


def has_revision(tag: str | None, revision: int) -> bool:
    """Return whether an If-None-Match header contains this revision."""
    return tag is not None and any(
        (match := _REVISION_TAG.fullmatch(candidate.strip())) is not None and int(match.group(1)) == revision
        for candidate in tag.split(",")
    )


def parse_message_id(text: str) -> str:
    """Return the text if it is a message id. Raise InvalidValue otherwise."""
    if _MESSAGE_ID.fullmatch(text) is None:
        raise InvalidValue(f"A message id must be branch.position, such as '1.17', got {text[:80]!r}.")
    return text


def parse_path_end(text: str) -> str | Literal[0]:
    """Return the id of the last message of a path; 0 if the text is `0`, for a path without messages."""
    return 0 if text == "0" else parse_message_id(text)


async def open_session(account: Account, session: str) -> AsyncSession:
    """Return the session of a path without changing its activity. Raise SessionNotFound or SessionInTrash."""
    return await account.session(decode_path_segment(session))


async def open_matching_session(account: Account, session: str, tag: str | None) -> AsyncSession:
    """Return the session of a path. Raise StaleRevision if it does not have the expected revision."""
    handle, expected = await open_session(account, session), expected_revision(tag)
    if expected is not None and handle.revision != expected:
        raise StaleRevision(session=handle.id, revision=handle.revision, expected=expected)
    return handle


def session_to_dict(account: Account, info: Info) -> dict[str, Any]:
    """Return a session as JSON data, with `running`."""
    return {**info.to_dict(), "running": account.runner.running(info.id)}


def paginate(items: Sequence[T], name: Callable[[T], str], limit: int, after: str | None) -> tuple[list[T], str | None]:
    """Return a page of a complete list and the cursor of the next page. `after` is the name of the item before it."""
    start = 0
    if after is not None:
        start = next((index for index, item in enumerate(items, 1) if name(item) == after), -1)
        if start < 0:
            raise InvalidValue(f"No item matches after={after[:80]!r}. Start again without `after`.")
    page = list(items[start : start + limit])
    return page, name(page[-1]) if start + limit < len(items) and page else None
