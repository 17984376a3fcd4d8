"""What a client of the API is told about an error: help that it can use."""

import json
import re

import pytest

from recollect import errors
from recollect.server.problem import problem

FIELDS = {
    "session": "plans/2026", "message": "1.9", "branch": 3, "turn": "1.1", "call_id": "c", "round": 1, "holder": "web",
    "until": "noon", "forks": ("a", "b"), "revision": 2, "expected": 1, "name": "p", "count": 2, "matches": ("x", "y"), "key": "k",
    "path": "r.db", "status": "failed", "format": "f", "known": ("a", "b"), "seconds": 5.0, "reason": "it is so", "found": 9,
    "kind": "nfs", "what": "This", "limit": 3, "model": "m", "platform": "Discord",
}  # fmt: skip


def kinds(kind=errors.RecollectError):
    for found in kind.__subclasses__():
        if found.__module__ == "recollect.errors":
            yield found
            yield from kinds(found)


@pytest.mark.parametrize(
    "kind", sorted({*kinds(errors.NotFound), *kinds(errors.Conflict)}, key=lambda kind: kind.__name__)
)
def test_it_names_requests_and_no_methods_of_the_library(kind):
    told = problem(kind(**FIELDS))
    assert not re.search(r"\b(store|session|turn)(\.\w+)?\(", told.detail)
    assert "{" not in told.detail
    assert told.fields["session"] == "plans/2026"


def test_the_request_can_be_sent_as_it_stands():
    told = problem(errors.SessionInTrash(session="plans/2026 €"))
    assert "POST /sessions/plans%2F2026%20%E2%82%AC/restore" in told.detail


def test_words_of_its_own_stay():
    assert problem(errors.SessionNotFound("Look elsewhere.", session="a")).detail == "Look elsewhere."
    assert problem(errors.SessionNotFound("Look elsewhere.")).detail == "Look elsewhere."


def test_an_id_that_is_no_text_is_told_too():
    assert problem(errors.SessionNotFound(session="\ud800")).body()


def test_several_things_are_a_list_and_read_as_a_sentence():
    told = problem(errors.SessionHasForks(session="a", forks=("f, or so", "g")))
    assert "its past: f, or so, g. Erase" in told.detail
    assert json.loads(told.body())["fields"]["forks"] == ["f, or so", "g"]
