"""Settings of an owner: any JSON value by its key."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Response, delete, get, put

from recollect.errors import InvalidValue
from recollect.model import json
from recollect.server.account import Account
from recollect.server.api.answer import told
from recollect.server.names import session_id

TAGS = ["settings"]
_LONGEST = 512


class Setting(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A value; null where it is not set."""

    value: Any


def _key(text: str) -> str:
    key = session_id(text)
    if len(key) > _LONGEST or "\0" in key or key != json.storable(key):
        raise InvalidValue(f"A setting's key is a text of at most {_LONGEST} characters.")
    return key


@get("/settings/{key:str}", tags=TAGS, operation_id="get_setting")
async def get_setting(account: Account, key: str) -> Response[Setting]:
    """Read a setting."""
    return told({"value": await account.store.setting(_key(key))})


@put("/settings/{key:str}", tags=TAGS, operation_id="set_setting", status_code=204)
async def set_setting(account: Account, key: str, data: Setting) -> None:
    """Write a setting, any JSON value; null removes it."""
    await account.store.set_setting(_key(key), data.value)


@delete("/settings/{key:str}", tags=TAGS, operation_id="delete_setting")
async def delete_setting(account: Account, key: str) -> None:
    """Remove a setting."""
    await account.store.set_setting(_key(key), None)


ROUTES: list[Any] = [get_setting, set_setting, delete_setting]
