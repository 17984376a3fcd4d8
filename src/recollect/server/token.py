"""The token that opens the server: made at the first start, and kept with the configuration."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping

from recollect import config
from recollect.errors import InvalidConfig, InvalidValue

NAME = "server-token"
SHORTEST = 16
"""Characters that a token has at least where other machines can try it."""


def kept() -> str:
    """Give the token that is kept beside the configuration file; the first time it is made."""
    path = os.path.join(os.path.dirname(config.file()), NAME)
    with contextlib.suppress(FileNotFoundError):
        return _read(path)
    config.make_folder(os.path.dirname(path))
    whole = f"{path}.{os.getpid()}.{secrets.token_hex(4)}"
    with os.fdopen(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{secrets.token_urlsafe(24)}\n")
    try:
        os.link(whole, path)  # never replaces: where another process was first, its token counts
    except FileExistsError:
        pass
    finally:
        os.unlink(whole)
    return _read(path)


def checked(tokens: Mapping[str, str], *, public: bool) -> dict[str, str]:
    """Give the owners' tokens as token to owner, if each is one's own and long enough to be reached from outside."""
    found: dict[str, str] = {}
    for owner, token in tokens.items():
        if token in found:
            raise InvalidValue(f"{owner!r} and {found[token]!r} have the same token. Give each a token of their own.")
        if public and len(token) < SHORTEST:
            whose = f"The token of {owner!r}" if owner else "The token"
            raise InvalidValue(
                f"{whose} has {len(token)} characters, and other machines can try to guess it: it needs {SHORTEST}. "
                f'`python -c "import secrets; print(secrets.token_urlsafe(24))"` makes one.'
            )
        found[token] = owner
    return found


def _read(path: str) -> str:
    if os.name == "posix" and os.stat(path).st_mode & 0o077:
        os.chmod(path, 0o600)
    with open(path, encoding="utf-8") as file:
        token = file.read().strip()
    if not token:
        raise InvalidConfig(f"{path} is empty. Delete it: a new token is made.", path=path, line=None)
    return token
