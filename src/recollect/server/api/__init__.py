"""The HTTP API under /api/v1: everything that the store and the page do, as JSON. One file for each resource."""

from __future__ import annotations

from typing import Any

from recollect.server.api.health import health

ROUTES: list[Any] = [health]
