"""What a browser sees that may not come in, or whose link leads nowhere: what to do, and a field for the token."""

from __future__ import annotations

from recollect.server.page.template import render
from recollect.server.problem import Problem


def door(problem: Problem, *, team: bool = False) -> bytes:
    """Render the page that says so. In a team, members have been given their tokens; nothing is printed for them."""
    return render("door.html", problem=problem, team=team).encode()
