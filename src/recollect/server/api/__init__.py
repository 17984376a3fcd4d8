"""The HTTP API under /api/v1: everything that the store and the page do, as JSON. One file for each resource."""

from __future__ import annotations

from typing import Any

from litestar import Router

from recollect.server.api import (
    approvals,
    branches,
    changes,
    chat,
    compactions,
    files,
    health,
    messages,
    search,
    sessions,
    settings,
    snapshots,
    statistics,
    tools,
    transfer,
    turns,
)

PATH = "/api/v1"
_RESOURCES: tuple[Any, ...] = (
    health, sessions, messages, turns, chat, approvals, tools, branches, search, compactions, snapshots, settings,
    transfer, statistics, changes, files,
)  # fmt: skip
ROUTES: list[Any] = [Router(PATH, route_handlers=[route for resource in _RESOURCES for route in resource.ROUTES])]
