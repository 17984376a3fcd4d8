"""Writes docs/openapi.json: the description of the HTTP API as the server gives it."""

from __future__ import annotations

import json
import pathlib
from typing import Any, cast

from recollect.agent import Agent
from recollect.server import app
from recollect.server.account import Accounts
from recollect.server.api.openapi import finished

TARGET = pathlib.Path(__file__).parent.parent / "docs" / "openapi.json"


def described() -> str:
    """Give the description as text."""
    accounts = Accounts(":memory:", lambda store: Agent(store=store))
    made = cast("Any", app.make(accounts, {}))
    return json.dumps(finished(made.inner.openapi_schema.to_schema()), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    TARGET.write_text(described())
    print(f"{TARGET} is written.")
