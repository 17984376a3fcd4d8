"""The HTTP API describes an error with help that its client can use."""

import json
import re

import pytest

from recollect import errors
from recollect.server.problems import problem_of

FIELDS = {
    "session": "plans/2026", "message": "1.9", "branch": 3, "turn": "1.1", "call_id": "c", "round": 1, "holder": "web",
    "until": "noon", "forks": ("a", "b"), "revision": 2, "expected": 1, "name": "p", "count": 2, "matches": ("x", "y"), "key": "k",
    "path": "r.db", "status": "failed", "format": "f", "known": ("a", "b"), "seconds": 5.0, "reason": "it is so", "found": 9,
    "kind": "nfs", "what": "This", "limit": 3, "model": "m", "platform": "Discord",
}  # fmt: skip


def kinds(kind=errors.RecollectError):
    for subclass in kind.__subclasses__():
        if subclass.__module__ == "recollect.errors":
            yield subclass
            yield from kinds(subclass)


@pytest.mark.parametrize(
    "kind",
    sorted({*kinds(errors.NotFound), *kinds(errors.Conflict)}, key=lambda kind: kind.__name__),  # pyright: ignore[reportAttributeAccessIssue]
)
def test_the_detail_names_requests_and_no_methods_of_the_library(kind):
    problem = problem_of(kind(**FIELDS))
    assert not re.search(r"\b(store|session|turn)(\.\w+)?\(", problem.detail)
    assert "{" not in problem.detail
    assert problem.fields["session"] == "plans/2026"  # pyright: ignore[reportOptionalSubscript]


def test_the_request_in_the_detail_is_percent_encoded():
    problem = problem_of(errors.SessionInTrash(session="plans/2026 €"))
    assert "POST /sessions/plans%2F2026%20%E2%82%AC/restore" in problem.detail


def test_a_custom_text_is_unchanged():
    assert problem_of(errors.SessionNotFound("Look elsewhere.", session="a")).detail == "Look elsewhere."
    assert problem_of(errors.SessionNotFound("Look elsewhere.")).detail == "Look elsewhere."


def test_an_id_with_a_surrogate_is_encoded():
    assert problem_of(errors.SessionNotFound(session="\ud800")).body()


def test_a_field_with_several_values_is_a_list_and_joined_in_the_detail():
    problem = problem_of(errors.SessionHasForks(session="a", forks=("f, or so", "g")))
    assert "share its messages: f, or so, g. Set" in problem.detail
    assert json.loads(problem.body())["fields"]["forks"] == ["f, or so", "g"]
