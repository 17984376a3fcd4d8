"""What a browser sees that may not come in, or whose link leads nowhere: what to do, and a field for the token."""

from __future__ import annotations

from recollect.server.page.template import render
from recollect.server.problem import Problem


def door(problem: Problem) -> bytes:
    """Render the page that says so."""
    return render("door.html", problem=problem).encode()
