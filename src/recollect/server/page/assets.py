"""The files that the page loads, each under a name that changes with its content, so that a browser may keep it."""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import mimetypes

from litestar import Response, get
from litestar.exceptions import NotFoundException

_KEEP = "public, max-age=31536000, immutable"


@functools.cache
def _files() -> dict[str, bytes]:
    """Read the files of static/. A name that a stranger asks for is looked up here, and never on the disk."""
    folder = importlib.resources.files("recollect.server.page") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file() and file.name[0] != "."}


@functools.cache
def asset(name: str) -> str:
    """Give the address of a file of static/."""
    content = _files()[name]
    return f"/static/{name}?v={hashlib.sha256(content).hexdigest()[:12]}"


@get("/favicon.ico", include_in_schema=False, sync_to_thread=False)
def favicon() -> Response[bytes]:
    """Give the icon to a browser that asks for it where browsers used to."""
    return _file("icon.svg")


@get("/static/{name:str}", include_in_schema=False, sync_to_thread=False)
def static(name: str) -> Response[bytes]:
    """Give a file of static/."""
    return _file(name)


def _file(name: str) -> Response[bytes]:
    content = _files().get(name)
    if content is None:
        raise NotFoundException("There is no file of this name here.")
    kind = mimetypes.guess_type(name)[0] or "text/plain"
    return Response(content, media_type=kind, headers={"cache-control": _KEEP})
