"""Long answers are split into pieces: no text is lost, every piece is within the limit, every code block is closed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.channels.bot import chat_markdown
from recollect.channels.bot.chat_markdown import close_code_block, find_code_blocks, split, utf16_length

PIECES = st.sampled_from(
    [
        "word ",
        "A sentence. ",
        "\n",
        "\n\n",
        "```\n",
        "```python\n",
        "~~~\n",
        "````\n",
        "x" * 30,
        "  ",
        "```",
        "`",
        "~~~~",
        "\U0001f600",
        "\u3002",
        "- item\n",
        "```a`b\n",
        "print('x')\n",
        "    ```\n",
        "```" + "y" * 50 + "\n",
        "~" * 40,
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=10), max_size=60).map("".join)


def visible_characters(text):
    return [character for character in text if not character.isspace() and character not in "`~"]


def is_subsequence(part, whole):
    rest = iter(whole)
    return all(character in rest for character in part)


@settings(max_examples=400, deadline=None)
@given(TEXTS, st.integers(24, 120), st.sampled_from([len, utf16_length]))
def test_no_text_is_lost_and_every_piece_is_valid(text, limit, measure):
    pieces = split(text, limit, measure)
    for piece in pieces:
        assert piece.strip()
        assert measure(piece) <= limit
        assert close_code_block(piece) == piece
    assert is_subsequence(visible_characters(text), visible_characters("".join(pieces)))


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.characters(exclude_characters="`~"), max_size=400), st.integers(1, 60))
def test_without_code_the_pieces_contain_exactly_the_text(text, limit):
    pieces = split(text, max(limit, 2), utf16_length)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_a_short_text_is_one_piece():
    assert split("hello", 10) == ["hello"]
    assert split("", 10) == []
    assert split(" \n ", 2) == []


def test_split_prefers_paragraphs_then_lines_then_sentences_then_words():
    assert split("one two.\n\nthree four. five", 20) == ["one two.", "three four. five"]
    assert split("one two\nthree four five six", 20) == ["one two", "three four five six"]
    assert split("One two three. Four five six", 20) == ["One two three.", "Four five six"]
    assert split("one two three four five six", 20) == ["one two three four", "five six"]
    assert split("x" * 45, 20) == ["x" * 20, "x" * 20, "x" * 5]


def test_a_code_block_that_fits_moves_whole_to_the_next_message():
    code = "```python\n" + "print(1)\n" * 5 + "```"
    assert split("some words of introduction that fill\n\n" + code, 80) == [
        "some words of introduction that fill",
        code,
    ]


def test_a_code_block_that_is_too_long_is_closed_and_reopened_with_its_language():
    pieces = split("```python\n" + "".join(f"line({n})\n" for n in range(40)) + "```\nafter", 100)
    assert len(pieces) > 3
    assert all(piece.startswith("```python\nline(") for piece in pieces)
    assert pieces[-1].endswith("```\nafter")
    assert all(piece.endswith("\n```") for piece in pieces[:-1])
    lines = [line for piece in pieces for line in piece.split("\n") if line.startswith("line")]
    assert lines == [f"line({n})" for n in range(40)]


def test_an_emoji_counts_as_two_utf_16_units():
    assert utf16_length("a\U0001f600") == 3
    assert max(utf16_length(piece) for piece in split("\U0001f600" * 50, 21, utf16_length)) <= 21


@pytest.mark.parametrize("text", ["```py\ncode\n```", "~~~\ncode\n~~~", "```\na\n```\n```\nb\n```"])
def test_closed_code_blocks_are_unchanged(text):
    assert close_code_block(text) == text
    assert all(block.end is not None for block in find_code_blocks(text))


def test_a_code_block_is_closed_with_its_own_fence():
    assert close_code_block("~~~~\ncode") == "~~~~\ncode\n~~~~"
    assert close_code_block("```\n~~~\n") == "```\n~~~\n```"


def test_code_blocks_are_scanned_once_per_piece(monkeypatch):
    """One scan for each possible end of a piece would take quadratic time."""
    original = chat_markdown.find_code_blocks
    scan_lengths: list[int] = []
    monkeypatch.setattr(
        chat_markdown, "find_code_blocks", lambda text: scan_lengths.append(len(text)) or original(text)
    )
    text = "```\na\n```\n" * 16_000
    pieces = chat_markdown.split(text, 2_000)
    assert len(pieces) >= len(text) // 2_000
    assert sum(scan_lengths) < 12 * len(text)
