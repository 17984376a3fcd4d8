"""What fills the sidebar."""

from __future__ import annotations

from typing import Any

from recollect.server.account import Account


async def sidebar(account: Account, session: str | None) -> dict[str, Any]:  # noqa: ARG001  filled by its own screen
    """Give what the sidebar's template needs, with the open session marked."""
    return {}
