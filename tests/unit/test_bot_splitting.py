"""Long answers in pieces: nothing lost, every piece within the limit, every code block closed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.channels.bot import splitting
from recollect.channels.bot.splitting import blocks, closed, split, utf16

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


def bare(text):
    return [character for character in text if not character.isspace() and character not in "`~"]


def is_within(part, whole):
    rest = iter(whole)
    return all(character in rest for character in part)


@settings(max_examples=400, deadline=None)
@given(TEXTS, st.integers(24, 120), st.sampled_from([len, utf16]))
def test_nothing_is_lost_and_every_piece_is_sound(text, limit, measure):
    pieces = split(text, limit, measure)
    for piece in pieces:
        assert piece.strip()
        assert measure(piece) <= limit
        assert closed(piece) == piece
    assert is_within(bare(text), bare("".join(pieces)))


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.characters(exclude_characters="`~"), max_size=400), st.integers(1, 60))
def test_without_code_the_pieces_are_the_text(text, limit):
    pieces = split(text, max(limit, 2), utf16)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_a_short_text_is_one_piece():
    assert split("hello", 10) == ["hello"]
    assert split("", 10) == []
    assert split(" \n ", 2) == []


def test_paragraphs_before_lines_before_sentences_before_words():
    assert split("one two.\n\nthree four. five", 20) == ["one two.", "three four. five"]
    assert split("one two\nthree four five six", 20) == ["one two", "three four five six"]
    assert split("One two three. Four five six", 20) == ["One two three.", "Four five six"]
    assert split("one two three four five six", 20) == ["one two three four", "five six"]
    assert split("x" * 45, 20) == ["x" * 20, "x" * 20, "x" * 5]


def test_a_code_block_goes_whole_into_the_next_message_where_it_fits():
    code = "```python\n" + "print(1)\n" * 5 + "```"
    assert split("some words of introduction that fill\n\n" + code, 80) == [
        "some words of introduction that fill",
        code,
    ]


def test_a_code_block_that_is_too_long_is_closed_and_opened_with_its_language():
    pieces = split("```python\n" + "".join(f"line({n})\n" for n in range(40)) + "```\nafter", 100)
    assert len(pieces) > 3
    assert all(piece.startswith("```python\nline(") for piece in pieces)
    assert pieces[-1].endswith("```\nafter")
    assert all(piece.endswith("\n```") for piece in pieces[:-1])
    lines = [line for piece in pieces for line in piece.split("\n") if line.startswith("line")]
    assert lines == [f"line({n})" for n in range(40)]


def test_emoji_count_as_telegram_counts_them():
    assert utf16("a\U0001f600") == 3
    assert max(utf16(piece) for piece in split("\U0001f600" * 50, 21, utf16)) <= 21


@pytest.mark.parametrize("text", ["```py\ncode\n```", "~~~\ncode\n~~~", "```\na\n```\n```\nb\n```"])
def test_closed_blocks_stay(text):
    assert closed(text) == text
    assert all(block.end is not None for block in blocks(text))


def test_a_block_is_closed_with_its_own_marks():
    assert closed("~~~~\ncode") == "~~~~\ncode\n~~~~"
    assert closed("```\n~~~\n") == "```\n~~~\n```"


def test_many_code_blocks_are_looked_through_once_for_each_piece(monkeypatch):
    """Not once for each place where a piece could end, which took quadratic time."""
    blocks = splitting.blocks
    looked: list[int] = []
    monkeypatch.setattr(splitting, "blocks", lambda text: looked.append(len(text)) or blocks(text))
    text = "```\na\n```\n" * 16_000
    pieces = splitting.split(text, 2_000)
    assert len(pieces) >= len(text) // 2_000
    assert sum(looked) < 12 * len(text)
