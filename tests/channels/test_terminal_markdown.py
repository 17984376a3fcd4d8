"""Markdown blocks of a streaming answer: each is returned when it is complete, and no text is lost or changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.channels.terminal.screen import MarkdownBlocks

TEXT = """First paragraph
on two lines.

- one

- two
  continues

  further
- three

After the list.

```python
def f():

    return 1
```

~~~
``` not an end

~~~
1. a
2. b

| a | b |
|---|---|
| 1 | 2 |

Last"""


def feed_all(pieces):
    parser, blocks = MarkdownBlocks(), []
    for piece in pieces:
        blocks += parser.feed(piece)
    return [*blocks, parser.finish()]


def test_blocks():
    assert feed_all([TEXT]) == [
        "First paragraph\non two lines.",
        "- one\n\n- two\n  continues\n\n  further\n- three",
        "After the list.",
        "```python\ndef f():\n\n    return 1\n```",
        "~~~\n``` not an end\n\n~~~",
        "1. a\n2. b",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "Last",
    ]


def test_a_paragraph_is_returned_as_soon_as_it_is_complete():
    blocks = MarkdownBlocks()
    assert blocks.feed("One\n") == []
    assert blocks.incomplete == "One\n"
    assert blocks.feed("\nTwo") == ["One"]
    assert blocks.incomplete == "Two"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_the_size_of_the_pieces_does_not_matter(size):
    assert feed_all([TEXT[i : i + size] for i in range(0, len(TEXT), size)]) == feed_all([TEXT])


_LINES = st.sampled_from(
    ["a\n", "\n", "- x\n", "1. y\n", "```\n", "```py\n", "    code\n", "~~~\n", "> q\n", "# h\n", "  \n"]
)


@given(st.lists(_LINES, max_size=30), st.integers(1, 9))
def test_no_line_is_lost(lines, size):
    text = "".join(lines)
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    blocks = feed_all(pieces)
    assert blocks == feed_all([text])
    block_lines = [line for block in blocks for line in block.split("\n") if line.strip()]
    assert block_lines == [line for line in text.split("\n") if line.strip()]


def test_each_line_is_parsed_once(monkeypatch):
    """Count the parsed lines of one long block that arrives in many small pieces."""
    lines: list[str] = []
    add_line = MarkdownBlocks._add_line
    monkeypatch.setattr(MarkdownBlocks, "_add_line", lambda blocks, line: lines.append(line) or add_line(blocks, line))
    text = "```\n" + "a b c\n" * 2_000
    assert feed_all([text[i : i + 4] for i in range(0, len(text), 4)]) == [text.strip("\n")]
    assert len(lines) == 2_001
