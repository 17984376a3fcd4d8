"""Settings of an owner: JSON values by key."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Response, delete, get, put

from recollect.errors import InvalidValue
from recollect.model import json
from recollect.server.account import Account
from recollect.server.api.responses import json_response
from recollect.server.path_segments import decode_path_segment

TAGS = ["settings"]
_MAX_KEY_LENGTH = 512  # characters. Keys are names; a limit keeps index entries small.


class SettingSchema(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The value of a setting; null if it is not set."""

    value: Any


def _decode_key(text: str) -> str:
    key = decode_path_segment(text)
    if len(key) > _MAX_KEY_LENGTH or "\0" in key or key != json.escape_surrogates(key):
        raise InvalidValue(
            f"A setting's key must have at most {_MAX_KEY_LENGTH} characters, without NUL and lone surrogates."
        )
    return key


@get("/settings/{key:str}", tags=TAGS, operation_id="get_setting")
async def get_setting(account: Account, key: str) -> Response[SettingSchema]:
    """Read a setting."""
    return json_response({"value": await account.store.setting(_decode_key(key))})


@put("/settings/{key:str}", tags=TAGS, operation_id="set_setting", status_code=204)
async def set_setting(account: Account, key: str, data: SettingSchema) -> None:
    """Set a setting to any JSON value; null removes it."""
    await account.store.set_setting(_decode_key(key), data.value)


@delete("/settings/{key:str}", tags=TAGS, operation_id="delete_setting")
async def delete_setting(account: Account, key: str) -> None:
    """Remove a setting."""
    await account.store.set_setting(_decode_key(key), None)


ROUTES: list[Any] = [get_setting, set_setting, delete_setting]
