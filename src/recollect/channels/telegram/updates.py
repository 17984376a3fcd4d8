"""Reading updates one by one: the library drops all that came together for one update that it can not read."""

from __future__ import annotations

import logging
from typing import Any

from telegram import Update
from telegram.request import HTTPXRequest

_log = logging.getLogger(__name__)


class UpdatesRequest(HTTPXRequest):
    """The connection that updates come on."""

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Read what Telegram sent; an update that can not be read becomes an empty one, so that it is confirmed too."""
        answer: Any = HTTPXRequest.parse_json_payload(payload)
        if not isinstance(answer, dict):
            return {"ok": False, "result": [], "description": "Telegram sent no object"}
        if isinstance(answer.get("result"), list):
            return {**answer, "result": [kept for raw in answer["result"] if (kept := _readable(raw)) is not None]}
        return answer


def _readable(raw: Any) -> dict[str, Any] | None:
    number = raw.get("update_id") if isinstance(raw, dict) else None
    if not isinstance(number, int):
        _log.warning("Telegram sent an update without an id, which is left out")
        return None
    try:
        Update.de_json(raw, None)
    except Exception as error:  # noqa: BLE001  whatever is in it, the bot outlives it
        _log.warning("Update %s can not be read, and is left out: %s", number, type(error).__name__)
        return {"update_id": number}
    return raw
