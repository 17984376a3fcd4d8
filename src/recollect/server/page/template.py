"""The templates: Jinja2 with everything escaped, and what each of them may call."""

from __future__ import annotations

import functools
from typing import Any

import jinja2
from litestar import Response

from recollect.server.page.assets import asset
from recollect.server.page.icons import icon
from recollect.server.page.plaintext import sendable


@functools.cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("recollect.server.page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    known: dict[str, Any] = {"asset": asset, "icon": icon}
    made.globals.update(known)
    return made


def render(name: str, /, **values: Any) -> str:
    """Fill a template."""
    return sendable(_environment().get_template(name).render(**values))


def answer(name: str, /, **values: Any) -> Response[str]:
    """Answer with a template that is filled."""
    return html(render(name, **values))


def html(text: str) -> Response[str]:
    """Answer with HTML of ours."""
    return Response(text, media_type="text/html")  # the framework adds the charset
