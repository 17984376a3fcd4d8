"""The page: what a person sees in the browser, rendered here and kept up to date by small scripts of our own.

templates/ is Jinja2, with every value escaped. static/ has styles, scripts, and htmx as it was published, with its
licence; assets.py gives each file a name that changes with its content. door.py is what a browser sees that may not
come in. Around the conversation: rows and sidebar (the list), marks (what is done to a row), searching, charts and
figures, transfers (files out and in), keys (the help); clock writes times as the browser's zone has them.
"""

from __future__ import annotations

from typing import Any

from recollect.server.page import (
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
from recollect.server.page.assets import favicon, static

ROUTES: list[Any] = [
    favicon, static, *conversation.ROUTES, *acting.ROUTES, *panels.ROUTES, *events.ROUTES, *files.ROUTES,
    *sidebar.ROUTES, *marks.ROUTES, *searching.ROUTES, *figures.ROUTES, *transfers.ROUTES,
]  # fmt: skip
