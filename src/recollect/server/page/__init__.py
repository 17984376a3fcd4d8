"""The web app: HTML rendered on the server and updated by small scripts.

templates/ are Jinja2 templates with autoescaping, static/ styles and scripts. conversation.py and item_rendering.py
render a conversation, live_updates.py a running answer, markdown*.py its text; sidebar.py and session_rows.py the list
of conversations; search.py, statistics_page.py and transfers.py the dialogs and the usage page. action_routes.py
receives the actions. clock.py formats times in the browser's time zone.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> list[Any]:
    """Import the routes on first access: the Markdown worker imports this package and uses none of them."""
    if name != "ROUTES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from recollect.server.page import (  # noqa: PLC0415
        action_routes,
        conversation,
        live_updates,
        search,
        sidebar,
        statistics_page,
        transfers,
    )
    from recollect.server.page.templating import favicon, static_file  # noqa: PLC0415

    return [
        favicon, static_file, *conversation.CONVERSATION_ROUTES, *action_routes.ACTION_ROUTES,
        *conversation.PANEL_ROUTES, *live_updates.ROUTES, *conversation.FILE_ROUTES, *sidebar.ROUTES,
        *action_routes.SESSION_ROUTES, *search.ROUTES,
        *statistics_page.ROUTES, *transfers.ROUTES,
    ]  # fmt: skip
