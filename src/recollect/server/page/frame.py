"""The frame: the document around every screen, with the sidebar filled."""

from __future__ import annotations

import asyncio
from typing import Any

import markupsafe
from litestar import Request, Response

from recollect.server.account import Account
from recollect.server.page.sidebar import sidebar
from recollect.server.page.template import answer

THEMES = ("system", "light", "dark")


async def framed(
    request: Request[Any, Any, Any],
    account: Account,
    *,
    title: str,
    main: str = "",
    session: str | None = None,
    template: str = "frame.html",
    **values: Any,
) -> Response[str]:
    """Render a whole page: `main` is HTML of ours, or `template` extends frame.html with a block `main`."""
    theme = request.cookies.get("theme", "system")
    await account.feed.begin()
    place = account.feed.mark(account.feed.count)  # of before the list is read: what changes meanwhile is told
    return await asyncio.to_thread(
        answer,
        template,
        title=title,
        main=markupsafe.Markup(main),  # noqa: S704  rendered by a template of ours
        session=session,
        place=place,
        theme=theme if theme in THEMES else "system",
        **{**await sidebar(request, account, session), **values},
    )
