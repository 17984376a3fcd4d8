"""An answer while it comes: blocks are given once they are complete, and nothing is lost or changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.channels.terminal.markdown import Blocks

TEXT = """First paragraph
on two lines.

- one

- two
  goes on

  and on
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


def fed(pieces):
    blocks, done = Blocks(), []
    for piece in pieces:
        done += blocks.feed(piece)
    return [*done, blocks.finish()]


def test_blocks():
    assert fed([TEXT]) == [
        "First paragraph\non two lines.",
        "- one\n\n- two\n  goes on\n\n  and on\n- three",
        "After the list.",
        "```python\ndef f():\n\n    return 1\n```",
        "~~~\n``` not an end\n\n~~~",
        "1. a\n2. b",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "Last",
    ]


def test_a_paragraph_is_given_as_soon_as_it_is_complete():
    blocks = Blocks()
    assert blocks.feed("One\n") == []
    assert blocks.rest == "One\n"
    assert blocks.feed("\nTwo") == ["One"]
    assert blocks.rest == "Two"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_the_pieces_make_no_difference(size):
    assert fed([TEXT[i : i + size] for i in range(0, len(TEXT), size)]) == fed([TEXT])


_LINES = st.sampled_from(
    ["a\n", "\n", "- x\n", "1. y\n", "```\n", "```py\n", "    code\n", "~~~\n", "> q\n", "# h\n", "  \n"]
)


@given(st.lists(_LINES, max_size=30), st.integers(1, 9))
def test_nothing_is_lost(lines, size):
    text = "".join(lines)
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    given_back = fed(pieces)
    assert given_back == fed([text])
    kept = [line for block in given_back for line in block.split("\n") if line.strip()]
    assert kept == [line for line in text.split("\n") if line.strip()]


def test_each_line_is_looked_at_once(monkeypatch):
    """An answer in one long block, in many small pieces."""
    lines: list[str] = []
    take = Blocks._take
    monkeypatch.setattr(Blocks, "_take", lambda blocks, line: lines.append(line) or take(blocks, line))
    text = "```\n" + "a b c\n" * 2_000
    assert fed([text[i : i + 4] for i in range(0, len(text), 4)]) == [text.strip("\n")]
    assert len(lines) == 2_001
