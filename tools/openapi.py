"""Write docs/openapi.json, the OpenAPI document of the HTTP API that the server returns."""

from __future__ import annotations

import json
import pathlib
from typing import Any, cast

from recollect.agent import Agent
from recollect.server import app
from recollect.server.account import Accounts
from recollect.server.api.openapi import finish_document

TARGET = pathlib.Path(__file__).parent.parent / "docs" / "openapi.json"


def openapi_json() -> str:
    """Return the OpenAPI document as JSON text."""
    accounts = Accounts(":memory:", lambda store: Agent(store=store))
    application = cast("Any", app.create_app(accounts, {}))
    return json.dumps(finish_document(application.inner.openapi_schema.to_schema()), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    TARGET.write_text(openapi_json())
    print(f"Wrote {TARGET}.")
