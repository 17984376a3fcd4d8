"""The page: what a person sees in the browser, rendered here and kept up to date by small scripts of our own.

templates/ is Jinja2, with every value escaped. static/ has styles, scripts, and htmx as it was published, with its
licence; assets.py gives each file a name that changes with its content. door.py is what a browser sees that may not
come in. Around the conversation: rows and sidebar (the list), marks (what is done to a row), searching, charts and
figures, transfers (files out and in), keys (the help); clock writes times as the browser's zone has them.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> list[Any]:
    """Load the routes when they are first asked for: the worker that renders Markdown uses none of them."""
    if name != "ROUTES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from recollect.server.page import (  # noqa: PLC0415
        acting,
        conversation,
        events,
        figures,
        files,
        marks,
        panels,
        searching,
        sidebar,
        transfers,
    )
    from recollect.server.page.assets import favicon, static  # noqa: PLC0415

    return [
        favicon, static, *conversation.ROUTES, *acting.ROUTES, *panels.ROUTES, *events.ROUTES, *files.ROUTES,
        *sidebar.ROUTES, *marks.ROUTES, *searching.ROUTES, *figures.ROUTES, *transfers.ROUTES,
    ]  # fmt: skip
