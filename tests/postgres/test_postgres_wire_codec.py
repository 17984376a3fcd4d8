"""Text that PostgreSQL would refuse is stored and read unchanged, and parameters are encoded."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recollect
from recollect.engine.postgres import wire_codec
from recollect.engine.postgres.statements import MultiRowStatement, PreparedStatement

hostile_text = st.text(st.sampled_from('\0\x10\\0pu1"a'), max_size=12) | st.text(st.characters(codec="utf-8"))


@given(hostile_text)
def test_text_is_decoded_unchanged(value):
    encoded = wire_codec.encode_parameter(value)
    assert b"\0" not in encoded  # pyright: ignore[reportOperatorIssue]
    assert wire_codec.column_decoder(25)(encoded) == value  # pyright: ignore[reportOptionalCall]


@given(st.lists(hostile_text, min_size=2, max_size=2))
def test_different_texts_have_different_encodings(values):
    assert (values[0] == values[1]) == (
        wire_codec.encode_parameter(values[0]) == wire_codec.encode_parameter(values[1])
    )


@given(st.lists(hostile_text))
def test_text_in_a_json_array_of_the_server_is_decoded_unchanged(values):
    array = json.dumps([wire_codec.encode_parameter(value).decode() for value in values], ensure_ascii=False)
    assert json.loads(wire_codec.column_decoder(114)(array.encode())) == values  # pyright: ignore[reportOptionalCall]


def test_the_longest_keys_fit_an_index(postgres):
    """In characters of four bytes, which cannot be compressed, and with the longest owner."""
    long_text = "".join(map(chr, range(0x20000, 0x20000 + 3_000)))
    with recollect.open(postgres, owner=long_text[:128]) as store:
        session = store.create_session(long_text[:512], title=long_text, model=long_text[:512], channel=long_text[:512])
        store.set_setting(long_text[:512], 1)
        assert (session.title, session.model, session.channel) == (long_text, long_text[:512], long_text[:512])
        assert store.find_session(long_text).id == store.list_sessions(order="title")[0].id == session.id
        assert store.list_sessions(model=session.model, channel=session.channel)[0].id == session.id
        assert store.get_session(session.id).append({"role": "user", "content": "x"}, key=long_text[:512]).ids == [
            "1.1"
        ]


@pytest.mark.parametrize("value", [0, -1, 2**62, True, False, None, "", "x", b"", b"\0\xff"], ids=repr)
def test_other_types_are_decoded_unchanged(value):
    type_oid = {int: 20, bool: 16, str: 25, bytes: 17, type(None): 25}[type(value)]
    encoded = wire_codec.encode_parameter(value)
    if isinstance(value, bytes):
        assert bytes(encoded) == value
        encoded = b"\\x" + encoded.hex().encode()
    assert (None if encoded is None else wire_codec.column_decoder(type_oid)(encoded)) == value  # pyright: ignore[reportOptionalCall]


def test_a_single_surrogate_is_refused():
    with pytest.raises(recollect.InvalidValue, match="surrogate"):
        wire_codec.encode_parameter("\ud800")


def test_parameters_are_numbered_by_name():
    statement = PreparedStatement("x", "SELECT :a::bigint, :b, :a, 'x'::text")
    assert (statement.text, statement.names) == (b"SELECT $1::bigint, $2, $1, 'x'::text", ["a", "b"])
    assert statement.values({"a": 1, "b": "y", "c": 3}) == [b"1", b"y"]


def test_rows_are_split_into_statements():
    statement = MultiRowStatement("x", "INSERT INTO t (a, b, c) VALUES (?1, ?1 >> 2, ?2) ON CONFLICT (a) DO NOTHING")
    batches = statement.split_rows([(number, "v") for number in range(18)])
    assert [len(values) for _, values in batches] == [16, 16, 4]
    assert (
        batches[2][0].text
        == b"INSERT INTO t (a, b, c) VALUES ($1, $1 >> 2, $2), ($3, $3 >> 2, $4) ON CONFLICT (a) DO NOTHING"
    )


def test_values_with_nul_are_stored_unchanged(postgres):
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
