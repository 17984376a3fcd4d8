"""The tree of errors: as drawn, exported, with sentences, and whole after crossing a process boundary."""

from __future__ import annotations

import copy
import pickle
import string

import pytest

import recollect
from recollect import errors


def everything(kind: type[errors.RecollectError]) -> list[type[errors.RecollectError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in everything(child))]


ERRORS = [kind for kind in everything(errors.RecollectError) if kind.__module__ == "recollect.errors"]


def drawn() -> dict[str, str | None]:
    """Read the tree in the module's docstring: each name with the one it hangs from."""
    above: list[str] = []
    tree: dict[str, str | None] = {}
    for line in (errors.__doc__ or "").splitlines():
        name = line.strip(" │├└─")
        if not name.isidentifier():
            continue
        depth = (line.index(name) - 4) // 4
        above[depth:] = [name]
        tree[name] = above[depth - 1] if depth else None
    return tree


def fields_of(kind: type[errors.RecollectError]) -> dict[str, object]:
    parsed = string.Formatter().parse(kind.__doc__ or "")
    return {name: 7 if spec else "that one" for _, name, spec, _ in parsed if name}


def test_the_drawn_tree_is_the_real_one():
    real = {kind.__name__: kind.__bases__[0].__name__ for kind in ERRORS if kind is not errors.RecollectError}
    assert drawn() == {"RecollectError": None, **real}


def test_the_tree_has_all_its_errors():
    assert len(ERRORS) > 25


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_is_public(kind):
    assert kind.__name__ in recollect.__all__
    assert getattr(recollect, kind.__name__) is kind


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_says_a_sentence_of_its_own(kind):
    error = kind(**fields_of(kind))
    text = str(error)
    assert "__doc__" in vars(kind)
    assert text[0].isupper() or text[0] in "'{" or kind.__doc__.startswith("{")
    assert text.endswith(".")
    assert "\n" not in text
    assert "  " not in text
    assert "{" not in text
    assert "}" not in text


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_keeps_its_fields_and_shows_them(kind):
    given = fields_of(kind)
    error = kind(**given)
    assert error.fields == given
    for name, value in given.items():
        assert getattr(error, name) == value
        assert str(value) in str(error)


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_crosses_a_process_boundary(kind, protocol):
    error = kind("Said otherwise.", **fields_of(kind))
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is kind
    assert str(again) == "Said otherwise."
    assert again.fields == error.fields
    for name, value in error.fields.items():
        assert getattr(again, name) == value


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_is_copied_whole(kind):
    error = kind(**fields_of(kind))
    again = copy.copy(error)
    assert type(again) is kind
    assert (str(again), again.fields) == (str(error), error.fields)


def test_an_invalid_value_is_a_value_error():
    assert issubclass(errors.InvalidValue, ValueError)


def test_a_value_with_braces_is_shown_as_it_is():
    error = errors.SessionNotFound(session="{owner}")
    assert "'{owner}'" in str(error)


def test_a_trashed_session_is_caught_as_missing():
    with pytest.raises(errors.SessionNotFound):
        raise errors.SessionInTrash(session="cli:x")


SENTENCES = {
    errors.SessionNotFound: "No talk {session!r}. Type /search.",
    errors.SessionInTrash: "{session} is thrown away.",
    errors.MessageNotFound: "No message {message}.",
}


class TestTheSentencesOfASurface:
    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (errors.SessionNotFound(session="it's"), 'No talk "it\'s". Type /search.'),
            (errors.SessionInTrash(session="a"), "a is thrown away."),
            (errors.SessionNotFound(session="{message}"), "No talk '{message}'. Type /search."),
        ],
    )
    def test_are_those_of_the_nearest_kind(self, error, expected):
        assert errors.told(error, SENTENCES) == expected

    @pytest.mark.parametrize(
        "error",
        [
            errors.BranchNotFound(session="a", branch=3),
            errors.SessionNotFound("It went away.", session="a"),
            errors.MessageNotFound("There are only 2 turns to go back."),
            errors.MessageNotFound("Not {here}.", message="1.2"),
        ],
    )
    def test_leave_other_errors_and_other_words_alone(self, error):
        assert errors.told(error, SENTENCES) == str(error)


def test_several_things_are_a_tuple_and_read_as_a_sentence():
    error = errors.SessionHasForks(session="a", forks=("f", "g, with a comma"))
    assert error.forks == ("f", "g, with a comma")
    assert "its past: f, g, with a comma. Erase" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again.forks), again.forks) == (tuple, error.forks)
    sentences = {errors.SessionHasForks: "{session} has {forks}."}
    assert errors.told(error, sentences) == "a has f, g, with a comma."


def test_a_tuple_that_was_given_for_something_else_is_shown_as_it_is():
    assert "no message format ('x', 1)." in str(errors.UnknownFormat(format=("x", 1), known=("a", "b")))
