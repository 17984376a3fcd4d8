"""Many rows are read by the driver's compiled half, few by hand: both say the same, whatever is in them."""

from __future__ import annotations

import pytest

import recollect
from recollect.engine.postgres import rows

HOSTILE = [
    "plain",
    "x\0y",
    "x\x10y",
    "\x100",
    "\x10p",
    "\x10",
    "\0",
    "\\u0010p",
    "\\\\u0010p",
    "é 北 👍",
    '"quoted"',
    "",
]


def everything(store):
    session = store.get_session("a")
    return [(m.id, m.role, m.text, m.model, m.metadata, m.state) for m in session.messages()]


@pytest.mark.parametrize("count", [7, 8, 200])
def test_read_either_way(postgres, monkeypatch, count):
    with recollect.open(postgres) as store:
        session = store.session("a")
        said = [HOSTILE[n % len(HOSTILE)] for n in range(count)]
        session.append([
            {
                "role": "user", "parts": [{"kind": "text", "text": text}], "metadata": {"k": text},
                "model": text or None,
            }
            for text in said
        ], format="recollect")  # fmt: skip
        quick = everything(store)
    monkeypatch.setattr(rows, "_COMPILED", False)
    with recollect.open(postgres) as store:
        assert everything(store) == quick
    assert [text for _, _, text, *_ in quick] == said
    assert [metadata for *_, metadata, _ in quick] == [{"k": text} for text in said]
