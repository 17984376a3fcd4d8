"""The server's access token: generated on the first start, stored next to the configuration file."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping

from recollect import config
from recollect.engine.atomic_file import fsync_path
from recollect.errors import InvalidValue

TOKEN_FILE_NAME = "server-token"  # noqa: S105  a file name
MIN_TOKEN_LENGTH = 32
"""Minimum length of a token in characters. 32 random characters cannot be guessed at any rate of attempts."""

_TOKEN_BYTES = 32  # bytes of randomness: 256 bits


def generate_token() -> str:
    """Return a new random token of 43 characters."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def load_or_create_token() -> str:
    """Return the token of the token file; generate it on the first call. An empty file counts as none.

    The token is on disk before the file gets its name, so a power failure leaves a complete token or none.
    """
    path = os.path.join(os.path.dirname(config.config_file()), TOKEN_FILE_NAME)
    token = _read_token_file(path)
    if token:
        return token
    config.make_folder(os.path.dirname(path))
    temporary = _temporary_path(path)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{generate_token()}\n")
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
        fsync_path(os.path.dirname(path))
    return _read_token_file(path) or load_or_create_token()


def validate_tokens(tokens: Mapping[str, str]) -> dict[str, str]:
    """Return the owners' tokens as token to owner. Raise InvalidValue if one is short, or if two owners share one."""
    owners: dict[str, str] = {}
    for owner, token in tokens.items():
        if token in owners:
            raise InvalidValue(
                f"Tokens must be unique, but {owner!r} and {owners[token]!r} have the same token. Assign a new one."
            )
        if len(token) < MIN_TOKEN_LENGTH:
            subject = f"The token of {owner!r}" if owner else "The server's token"
            raise InvalidValue(
                f"{subject} must have at least {MIN_TOKEN_LENGTH} characters, got {len(token)}. Run "
                f"`recollect config token` to generate one."
            )
        owners[token] = owner
    return owners


def _read_token_file(path: str) -> str | None:
    """Return the token in a file, and make the file private; "" if it is empty, None if there is none."""
    try:
        if os.name == "posix" and os.stat(path).st_mode & 0o077:
            os.chmod(path, 0o600)
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError:
        return None


def _temporary_path(path: str) -> str:
    return f"{path}.{os.getpid()}.{secrets.token_hex(4)}"


def _remove_empty(path: str) -> None:
    """Remove an empty token file. If another process has put a token there meanwhile, that one stays."""
    aside = _temporary_path(path)
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, aside)
        try:
            if _read_token_file(aside):
                os.link(aside, path)
        finally:
            os.unlink(aside)
