"""Complete HTML documents: the frame around every screen, and the error page with its login form."""

from __future__ import annotations

import asyncio
from typing import Any

import markupsafe
from litestar import Request, Response

from recollect.server.account import Account
from recollect.server.page.sidebar import sidebar_values
from recollect.server.page.templating import render_template, template_response
from recollect.server.problems import Problem


def error_page(problem: Problem, *, team: bool = False) -> bytes:
    """Return the HTML page of a problem. With `team`, it refers to the administrator instead of the printed link."""
    return render_template("error.html", problem=problem, team=team).encode()


THEMES = ("system", "light", "dark")


async def page_response(
    request: Request[Any, Any, Any],
    account: Account,
    *,
    title: str,
    main: str = "",
    session: str | None = None,
    template: str = "frame.html",
    **values: Any,
) -> Response[str]:
    """Return a complete page: `main` is safe HTML, or `template` extends frame.html with a block `main`."""
    theme = request.cookies.get("theme", "system")
    await account.feed.start()
    cursor = account.feed.cursor_at(
        account.feed.count
    )  # taken before the list is read, so that changes in between are sent
    return await asyncio.to_thread(
        template_response,
        template,
        title=title,
        main=markupsafe.Markup(main),  # noqa: S704  rendered by our templates
        session=session,
        place=cursor,
        theme=theme if theme in THEMES else "system",
        **{**await sidebar_values(request, account, session), **values},
    )
