"""The token that opens the server: generated on the first start, and kept next to the configuration file."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping

from recollect import config
from recollect.engine.part import sync
from recollect.errors import InvalidValue

NAME = "server-token"
SHORTEST = 32
"""Characters that a token must have. Guessing 32 random characters is hopeless, however many guesses are allowed."""

_BYTES = 32


def generate() -> str:
    """Return a new random token of 43 characters."""
    return secrets.token_urlsafe(_BYTES)


def kept() -> str:
    """Return the token of the token file; generate it on the first call. An empty file counts as none.

    The token is on disk before the file gets its name, so a power cut leaves a whole token or none.
    """
    path = os.path.join(os.path.dirname(config.file()), NAME)
    token = _read(path)
    if token:
        return token
    config.make_folder(os.path.dirname(path))
    temporary = _beside(path)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{generate()}\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        if token is not None:
            _remove_empty(path)
        os.link(temporary, path)  # never replaces: if another process was first, its token counts
    except FileExistsError:
        pass
    finally:
        os.unlink(temporary)
    with contextlib.suppress(OSError):  # not every system can sync a folder
        sync(os.path.dirname(path))
    return _read(path) or kept()


def checked(tokens: Mapping[str, str]) -> dict[str, str]:
    """Return the owners' tokens as token to owner. Raise InvalidValue if one is short, or if two owners share one."""
    found: dict[str, str] = {}
    for owner, token in tokens.items():
        if token in found:
            raise InvalidValue(f"{owner!r} and {found[token]!r} have the same token. Give each a token of their own.")
        if len(token) < SHORTEST:
            whose = f"The token of {owner!r}" if owner else "The server's token"
            raise InvalidValue(
                f"{whose} must have at least {SHORTEST} characters, got {len(token)}. Run `recollect config token` to "
                f"generate one."
            )
        found[token] = owner
    return found


def _read(path: str) -> str | None:
    """Return the token in a file, and make the file private; "" if it is empty, None if there is none."""
    try:
        if os.name == "posix" and os.stat(path).st_mode & 0o077:
            os.chmod(path, 0o600)
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError:
        return None


def _beside(path: str) -> str:
    return f"{path}.{os.getpid()}.{secrets.token_hex(4)}"


def _remove_empty(path: str) -> None:
    """Remove an empty token file. If another process has put a token there meanwhile, that one stays."""
    aside = _beside(path)
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, aside)
        try:
            if _read(aside):
                os.link(aside, path)
        finally:
            os.unlink(aside)
