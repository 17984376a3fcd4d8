"""Text that PostgreSQL would refuse goes in and comes out as it was."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recollect
from recollect.engine.postgres import text
from recollect.engine.postgres.book import Many, Statement

odd = st.text(st.sampled_from('\0\x10\\0pu1"a'), max_size=12) | st.text(st.characters(codec="utf-8"))


@given(odd)
def test_text_comes_back(value):
    written = text.written(value)
    assert b"\0" not in written
    assert text.reader(25)(written) == value


@given(st.lists(odd, min_size=2, max_size=2))
def test_no_two_texts_are_written_alike(values):
    assert (values[0] == values[1]) == (text.written(values[0]) == text.written(values[1]))


@given(st.lists(odd))
def test_text_comes_back_out_of_an_array_that_the_server_made(values):
    array = json.dumps([text.written(value).decode() for value in values], ensure_ascii=False)
    assert json.loads(text.reader(114)(array.encode())) == values


def test_what_a_session_is_found_by_fits_an_index(postgres):
    """In characters of four bytes each, which can not be packed, and for the longest owner."""
    varied = "".join(map(chr, range(0x20000, 0x20000 + 3_000)))
    with recollect.open(postgres, owner=varied[:128]) as store:
        session = store.create_session(varied[:512], title=varied, model=varied[:512], channel=varied[:512])
        store.set_setting(varied[:512], 1)
        assert (session.title, session.model, session.channel) == (varied, varied[:512], varied[:512])
        assert store.find_session(varied).id == store.list_sessions(order="title")[0].id == session.id
        assert store.list_sessions(model=session.model, channel=session.channel)[0].id == session.id
        assert store.get_session(session.id).append({"role": "user", "content": "x"}, key=varied[:512]).ids == ["1.1"]


@pytest.mark.parametrize("value", [0, -1, 2**62, True, False, None, "", "x", b"", b"\0\xff"], ids=repr)
def test_other_values(value):
    kind = {int: 20, bool: 16, str: 25, bytes: 17, type(None): 25}[type(value)]
    written = text.written(value)
    if isinstance(value, bytes):
        assert bytes(written) == value
        written = b"\\x" + written.hex().encode()
    assert (None if written is None else text.reader(kind)(written)) == value


def test_half_a_pair_is_refused():
    with pytest.raises(recollect.InvalidValue, match="surrogate"):
        text.written("\ud800")


def test_parameters_are_numbered_by_name():
    statement = Statement("x", "SELECT :a::bigint, :b, :a, 'x'::text")
    assert (statement.text, statement.names) == (b"SELECT $1::bigint, $2, $1, 'x'::text", ["a", "b"])
    assert statement.values({"a": 1, "b": "y", "c": 3}) == [b"1", b"y"]


def test_rows_are_written_some_at_a_time():
    many = Many("x", "INSERT INTO t (a, b, c) VALUES (?1, ?1 >> 2, ?2) ON CONFLICT (a) DO NOTHING")
    cut = many.cut([(number, "v") for number in range(18)])
    assert [len(values) for _, values in cut] == [16, 16, 4]
    assert (
        cut[2][0].text
        == b"INSERT INTO t (a, b, c) VALUES ($1, $1 >> 2, $2), ($3, $3 >> 2, $4) ON CONFLICT (a) DO NOTHING"
    )


def test_what_may_hold_a_nul(postgres):
    with recollect.open(postgres) as store:
        session = store.session("a", title="t\x10p", metadata={"x\0": "\x10"})
        assert (session.title, session.metadata) == ("t\x10p", {"x\0": "\x10"})
        session.append(
            [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "c\0\x10", "type": "function", "function": {"name": "t\0", "arguments": "{}"}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c\0\x10", "content": "r\0"},
            ],
            key="k\0",
        )
        call = session.tool_calls()[0]
        assert (call.call_id, call.tool, call.status) == ("c\0\x10", "t\0", "success")
        assert session.messages()[1].tool_results[0].output == "r\0"
        store.set_setting("s\0", "v\0\x10")
        assert store.setting("s\0") == "v\0\x10"
        assert store.setting("s") is None
        session.update(task="\x10\x10p0")
        assert store.get_session("a").task == "\x10\x10p0"
        with pytest.raises(recollect.NotFound):
            store.find_session("no\0such")
