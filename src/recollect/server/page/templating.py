"""Templates: the Jinja2 environment with autoescaping, and its globals: icons, static files, keyboard help.

The URL of a static file contains a hash of its content, so a browser may cache it forever.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import mimetypes
from collections.abc import Callable
from typing import Any

import jinja2
import markupsafe
from litestar import Response, get
from litestar.exceptions import NotFoundException

from recollect.export.plaintext import replace_surrogates
from recollect.model.humanize import escape_unprintable
from recollect.server.path_segments import encode_path_segment

_ICON_PATHS = {
    "archive": "M3 5h14v3H3zM4.5 8v7.5h11V8M8 11h4",
    "attach": "M14.5 9.5l-5 5a3 3 0 0 1-4.3-4.3l6-6a2 2 0 0 1 2.9 2.9l-5.8 5.8a1 1 0 0 1-1.4-1.4l5-5",
    "branch": "M6 4v12M6 12c0-3 8-1.5 8-5M14 7V4M4.5 4h3M4.5 16h3M12.5 4h3",
    "chart": "M4 16V9M8 16V5M12 16v-4M16 16V7M3 16.5h14",
    "check": "M4.5 10.5l3.5 3.5 7.5-8",
    "close": "M5 5l10 10M15 5L5 15",
    "copy": "M7 7h9v9H7zM4 13V4h9",
    "down": "M5 8l5 5 5-5",
    "download": "M10 4v8M6.5 8.5L10 12l3.5-3.5M4 15.5h12",
    "edit": "M4 16l.8-3.2L13 4.6a1.4 1.4 0 0 1 2 0l.4.4a1.4 1.4 0 0 1 0 2L7.2 15.2z",
    "filter": "M3.5 5h13M6 10h8M8.5 15h3",
    "fork": "M10 16v-5M10 11L5.5 6.5V4M10 11l4.5-4.5V4",
    "keyboard": "M3 5.5h14v9H3zM7 12h6",
    "left": "M12 5l-5 5 5 5",
    "link": "M8.5 11.5a2.5 2.5 0 0 0 3.5 0l3-3a2.5 2.5 0 0 0-3.5-3.5l-1 1"
    "M11.5 8.5a2.5 2.5 0 0 0-3.5 0l-3 3a2.5 2.5 0 0 0 3.5 3.5l1-1",
    "menu": "M3.5 6h13M3.5 10h13M3.5 14h13",
    "moon": "M15.5 12A6.5 6.5 0 0 1 8 4.5a6 6 0 1 0 7.5 7.5z",
    "more": "",
    "panel": "M3 4.5h14v11H3zM12.5 4.5v11",
    "pin": "M10 12v4.5M6 12h8l-1.5-2.5V5h1V3.5h-7V5h1v4.5z",
    "plus": "M10 4v12M4 10h12",
    "redo": "M15.5 8.5A6 6 0 1 0 16 11.5M16 4.5v4h-4",
    "right": "M8 5l5 5-5 5",
    "search": "M9 4a5 5 0 1 0 0 10A5 5 0 0 0 9 4zM12.7 12.7L16.5 16.5",
    "send": "M10 16V4.5M5 9.5l5-5 5 5",
    "stop": "M6 6h8v8H6z",
    "sun": "M10 7a3 3 0 1 0 0 6 3 3 0 0 0 0-6z"
    "M10 2.5v2M10 15.5v2M2.5 10h2M15.5 10h2M4.7 4.7l1.4 1.4M13.9 13.9l1.4 1.4M15.3 4.7l-1.4 1.4M6.1 13.9l-1.4 1.4",
    "tool": "M12.5 4a4 4 0 0 0-3.7 5.5L4 14.3 5.7 16l4.8-4.8A4 4 0 0 0 16 7.5l-2.3 2.3-2.5-.9-.9-2.5L12.6 4z",
    "trash": "M4 6h12M8 6V4h4v2M5.5 6l.8 10h7.4l.8-10M8.5 9v4.5M11.5 9v4.5",
    "undo": "M4.5 8.5A6 6 0 1 1 4 11.5M4 4.5v4h4",
    "up": "M5 12l5-5 5 5",
    "upload": "M10 12V4M6.5 7.5L10 4l3.5 3.5M4 15.5h12",
    "warning": "M10 3.5L17.5 16h-15zM10 8v3.5",
}  # fmt: skip

_ICON_DOTS = {
    "keyboard": ((6, 8.75, 0.9), (8.7, 8.75, 0.9), (11.3, 8.75, 0.9), (14, 8.75, 0.9)),
    "more": ((4.5, 10, 1.65), (10, 10, 1.65), (15.5, 10, 1.65)),
    "warning": ((10, 13.8, 0.95),),
}
"""Dots of icons: x, y and radius. A line end would be too faint."""


def render_icon(name: str) -> markupsafe.Markup:
    """Return an icon as SVG. It is hidden from assistive tools: every icon has a text or label next to it."""
    path = markupsafe.escape(_ICON_PATHS[name])
    start = '<svg class="icon" viewBox="0 0 20 20" width="20" height="20" fill="none" stroke="currentColor" '
    rest = 'stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">'
    dots = "".join(
        f'<circle cx="{x}" cy="{y}" r="{size}" fill="currentColor" stroke="none"/>'
        for x, y, size in _ICON_DOTS.get(name, ())
    )
    line = f'<path d="{path}"/>' if path else ""
    return markupsafe.Markup(f"{start}{rest}{line}{dots}</svg>")  # noqa: S704  our own paths


_CACHE_CONTROL = "public, max-age=31536000, immutable"


@functools.cache
def _static_files() -> dict[str, bytes]:
    """Return the files of static/ by name. Requested names are looked up here, never on the disk."""
    folder = importlib.resources.files("recollect.server.page") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file() and file.name[0] != "."}


@functools.cache
def asset_url(name: str) -> str:
    """Return the URL of a file of static/."""
    content = _static_files()[name]
    return f"/static/{name}?v={hashlib.sha256(content).hexdigest()[:12]}"


@get("/favicon.ico", include_in_schema=False, sync_to_thread=False)
def favicon() -> Response[bytes]:
    """Return the icon at the path that browsers request by default."""
    return _static_response("icon.svg")


@get("/static/{name:str}", include_in_schema=False, sync_to_thread=False)
def static_file(name: str) -> Response[bytes]:
    """Return a file of static/."""
    return _static_response(name)


def _static_response(name: str) -> Response[bytes]:
    content = _static_files().get(name)
    if content is None:
        raise NotFoundException("File not found.")
    kind = mimetypes.guess_type(name)[0] or "text/plain"
    return Response(content, media_type=kind, headers={"cache-control": _CACHE_CONTROL})


KEYBOARD_HELP: tuple[tuple[str, tuple[tuple[tuple[str, ...], str], ...]], ...] = (
    ("Everywhere", (
        (("Ctrl", "K"), "Search (Cmd K on a Mac)"),
        (("Alt", "N"), "New chat"),
        (("Alt", "S"), "Go to the conversation list, and back"),
        (("Alt", "\u2191"), "Previous conversation"),
        (("Alt", "\u2193"), "Next conversation"),
        (("/",), "Focus the message box"),
        (("?",), "Show this help"),
        (("Esc",), "Close a dialog or panel; stop an answer"),
    )),
    ("Conversation list", (
        (("\u2191", "\u2193"), "Next/previous conversation"),
        (("Home", "End"), "First/last conversation"),
        (("Enter",), "Open"),
        (("F2",), "Rename"),
        (("Delete",), "Delete (can be undone)"),
        (("Shift", "F10"), "Open the conversation's menu"),
        (("\u2192", "\u2190"), "Show/hide sub-agents"),
        (("\u2190", "\u2192"), "On the sidebar's edge: change its width"),
    )),
    ("Conversation", (
        (("Enter",), "Send"),
        (("Shift", "Enter"), "New line"),
        (("\u2191",), "In an empty message box: edit your last message"),
        (("Tab",), "Move through the buttons of the messages"),
        (("/",), "At the start of a message: choose a command"),
    )),
    ("Search", (
        (("\u2191", "\u2193"), "Next/previous result"),
        (("Enter",), "Go to the message"),
    )),
)  # fmt: skip


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("recollect.server.page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    template_globals: dict[str, Any] = {"asset": asset_url, "icon": render_icon}
    environment.globals.update(template_globals)
    template_filters: dict[str, Callable[..., Any]] = {
        "path_segment": encode_path_segment, "id_attribute": encode_id_attribute, "printable": escape_unprintable
    }  # fmt: skip
    environment.filters.update(template_filters)
    return environment


def encode_id_attribute(id: str) -> str:
    """Return a session id as the value of an attribute, which scripts decode with recollect.fromAttribute().

    HTML has no NUL, and a parser changes CR to LF, so these two and `%` are percent-encoded.
    """
    return id.replace("%", "%25").replace("\0", "%00").replace("\r", "%0D")


def render_template(name: str, /, **values: Any) -> str:
    """Return a template filled with values."""
    return replace_surrogates(_environment().get_template(name).render(**values))


def template_response(name: str, /, **values: Any) -> Response[str]:
    """Return a filled template as a response."""
    return html_response(render_template(name, **values))


def html_response(text: str) -> Response[str]:
    """Return HTML as a response."""
    return Response(text, media_type="text/html")  # the framework adds the charset
