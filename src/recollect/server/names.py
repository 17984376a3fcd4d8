"""Ids in addresses. An id is any printable text, so it is one piece of a path, escaped whole: a slash in it too."""

from __future__ import annotations

from urllib.parse import quote

from recollect.server.access import SLASH


def session_id(path_value: str) -> str:
    """Give the id that a piece of a path stands for."""
    return path_value.replace(SLASH, "/")


def piece(session: str) -> str:
    """Give an id as a piece of a path. No id has SLASH in it: it is not printable."""
    return quote(session, safe="")
