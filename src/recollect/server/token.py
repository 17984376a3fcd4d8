"""The token that opens the server: made at the first start, and kept with the configuration."""

from __future__ import annotations

import contextlib
import os
import secrets

from recollect import config
from recollect.errors import InvalidConfig

NAME = "server-token"


def kept() -> str:
    """Give the token that is kept beside the configuration file; the first time it is made."""
    path = os.path.join(os.path.dirname(config.file()), NAME)
    with contextlib.suppress(FileNotFoundError):
        return _read(path)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    token = secrets.token_urlsafe(24)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read(path)  # another process was first
    with os.fdopen(handle, "w") as file:
        file.write(f"{token}\n")
    return token


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        token = file.read().strip()
    if not token:
        raise InvalidConfig(f"{path} is empty. Delete it: a new token is made.", path=path, line=None)
    return token
