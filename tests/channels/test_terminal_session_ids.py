"""Hostile session ids in the terminal: completion, the list of conversations and the hint to resume."""

from __future__ import annotations

import pytest

pytest.importorskip("prompt_toolkit")

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from recollect.channels.terminal.prompt import InputCompleter


def completions(sessions, text):
    completer = InputCompleter()
    completer.sessions = sessions
    return list(completer.get_completions(Document(text), CompleteEvent()))


@pytest.mark.parametrize("id", ["a\nb", "a\x1b[31m", "a\0b", " a", "a ", "\u202ea"], ids=ascii)
def test_an_id_that_the_line_cannot_contain_is_completed_by_its_title(id):
    (completion,) = completions([(id, "A title"), (id, "")], "/resume A")
    assert completion.text == "A title"
    assert completion.display_meta_text.isprintable()
    assert completions([(id, "")], f"/resume {id[:1]}") == []


def test_other_ids_are_completed():
    assert [each.text for each in completions([("a b", ""), ("cli:a", "T")], "/resume ")] == ["a b", "cli:a"]
