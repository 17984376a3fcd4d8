"""The tree of errors: documented, exported, with full sentences, and complete after crossing a process boundary."""

from __future__ import annotations

import copy
import pickle
import string

import pytest

import recollect
from recollect import errors


def with_subclasses(kind: type[errors.RecollectError]) -> list[type[errors.RecollectError]]:
    return [kind, *(descendant for child in kind.__subclasses__() for descendant in with_subclasses(child))]


ERRORS = [kind for kind in with_subclasses(errors.RecollectError) if kind.__module__ == "recollect.errors"]


def documented_tree() -> dict[str, str | None]:
    """Read the tree in the module's docstring: each name with its parent."""
    ancestors: list[str] = []
    tree: dict[str, str | None] = {}
    for line in (errors.__doc__ or "").splitlines():
        name = line.strip(" │├└─")
        if not name.isidentifier():
            continue
        depth = (line.index(name) - 4) // 4
        ancestors[depth:] = [name]
        tree[name] = ancestors[depth - 1] if depth else None
    return tree


def fields_of(kind: type[errors.RecollectError]) -> dict[str, object]:
    parsed = string.Formatter().parse(kind.__doc__ or "")
    return {name: 7 if spec else "that one" for _, name, spec, _ in parsed if name}


def test_the_documented_tree_matches_the_classes():
    real = {kind.__name__: kind.__bases__[0].__name__ for kind in ERRORS if kind is not errors.RecollectError}
    assert documented_tree() == {"RecollectError": None, **real}


def test_the_tree_has_more_than_25_errors():
    assert len(ERRORS) > 25


def test_the_root_exports_the_branches_of_the_tree_and_the_errors_that_programs_catch_often():
    names = {kind.__name__ for kind in ERRORS} & set(recollect.__all__)
    branches = {"RecollectError", "NotFound", "Conflict", "InvalidValue", "StoreError"}
    assert branches < names
    assert len(names) <= 20
    for name in names:
        assert getattr(recollect, name) is getattr(errors, name)


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_has_its_own_sentence(kind):
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
def test_an_error_stores_and_prints_its_fields(kind):
    fields = fields_of(kind)
    error = kind(**fields)
    assert error.fields == fields
    for name, value in fields.items():
        assert getattr(error, name) == value
        assert str(value) in str(error)


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_crosses_a_process_boundary(kind, protocol):
    error = kind("A custom text.", **fields_of(kind))
    clone = pickle.loads(pickle.dumps(error, protocol))
    assert type(clone) is kind
    assert str(clone) == "A custom text."
    assert clone.fields == error.fields
    for name, value in error.fields.items():
        assert getattr(clone, name) == value


@pytest.mark.parametrize("kind", ERRORS)
def test_a_copied_error_has_the_same_text_and_fields(kind):
    error = kind(**fields_of(kind))
    clone = copy.copy(error)
    assert type(clone) is kind
    assert (str(clone), clone.fields) == (str(error), error.fields)


def test_an_invalid_value_is_a_value_error():
    assert issubclass(errors.InvalidValue, ValueError)


def test_a_value_with_braces_is_printed_unchanged():
    error = errors.SessionNotFound(session="{owner}")
    assert "'{owner}'" in str(error)


def test_a_session_in_the_trash_is_a_session_not_found():
    with pytest.raises(errors.SessionNotFound):
        raise errors.SessionInTrash(session="cli:x")


SENTENCES = {
    errors.SessionNotFound: "No conversation {session!r}. Type /search.",
    errors.SessionInTrash: "{session} is in the trash.",
    errors.MessageNotFound: "No message {message}.",
}


class TestFormatError:
    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (errors.SessionNotFound(session="it's"), 'No conversation "it\'s". Type /search.'),
            (errors.SessionInTrash(session="a"), "a is in the trash."),
            (errors.SessionNotFound(session="{message}"), "No conversation '{message}'. Type /search."),
        ],
    )
    def test_the_sentence_of_the_nearest_class_is_used(self, error, expected):
        assert errors.format_error(error, SENTENCES) == expected

    @pytest.mark.parametrize(
        "error",
        [
            errors.BranchNotFound(session="a", branch=3),
            errors.SessionNotFound("It was erased.", session="a"),
            errors.MessageNotFound("There are only 2 turns to go back."),
            errors.MessageNotFound("Not {here}.", message="1.2"),
        ],
    )
    def test_other_errors_and_custom_texts_are_unchanged(self, error):
        assert errors.format_error(error, SENTENCES) == str(error)


def test_a_field_with_several_values_is_a_tuple_and_joined_in_the_sentence():
    error = errors.SessionHasForks(session="a", forks=("f", "g, with a comma"))
    assert error.forks == ("f", "g, with a comma")  # pyright: ignore[reportAttributeAccessIssue]
    assert "its messages: f, g, with a comma. Erase" in str(error)
    clone = pickle.loads(pickle.dumps(error))
    assert (type(clone.forks), clone.forks) == (tuple, error.forks)  # pyright: ignore[reportAttributeAccessIssue]
    sentences = {errors.SessionHasForks: "{session} has {forks}."}
    assert errors.format_error(error, sentences) == "a has f, g, with a comma."


def test_a_tuple_in_another_field_is_printed_as_a_tuple():
    assert "Unknown message format ('x', 1)." in str(errors.UnknownFormat(format=("x", 1), known=("a", "b")))
