"""Text that PostgreSQL would refuse is stored and read unchanged, and parameters are encoded."""

from __future__ import annotations

import enum
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recollect
from recollect.engine.postgres import adapters
from recollect.engine.postgres.adapters import IntegerArray, encode_text
from recollect.engine.postgres.statements import MultiRowStatement, PreparedStatement

hostile_text = st.text(st.sampled_from('\0\x10\\0pu1"a'), max_size=12) | st.text(st.characters(codec="utf-8"))


@given(hostile_text)
def test_text_is_decoded_unchanged(value):
    encoded = encode_text(value)
    assert b"\0" not in encoded
    assert adapters.decode_text(encoded.decode()) == value


@given(st.lists(hostile_text, min_size=2, max_size=2))
def test_different_texts_have_different_encodings(values):
    assert (values[0] == values[1]) == (encode_text(values[0]) == encode_text(values[1]))


@given(st.lists(hostile_text))
def test_text_in_a_json_array_of_the_server_is_decoded_unchanged(values):
    array = json.dumps([encode_text(value).decode() for value in values], ensure_ascii=False)
    assert json.loads(adapters.decode_json(array)) == values


def test_the_longest_keys_fit_an_index(postgres):
    """In characters of four bytes, which cannot be compressed, and with the longest owner."""
    long_text = "".join(map(chr, range(0x20000, 0x20000 + 3_000)))
    with recollect.open(postgres, owner=long_text[:128]) as store:
        session = store.session(
            long_text[:256], exist_ok=False, title=long_text, model=long_text[:512], channel=long_text[:512]
        )
        store.records.put(long_text[256:320], long_text[:256], 1)
        session.records.put(long_text[256:320], long_text[:256], 1)
        assert (session.title, session.model, session.channel) == (long_text, long_text[:512], long_text[:512])
        assert store.find_session(long_text).id == store.list_sessions(order="title")[0].id == session.id
        assert store.list_sessions(model=session.model, channel=session.channel)[0].id == session.id
        assert store.get_session(session.id).append({"role": "user", "content": "x"}, key=long_text[:512]).ids == [
            "1.1"
        ]


class Size(enum.StrEnum):
    LARGE = "large"


class Level(enum.IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bigint", 0),
        ("bigint", -1),
        ("bigint", 2**62),
        ("bigint", Level.HIGH),
        ("numeric", 2**70),
        ("boolean", True),
        ("boolean", False),
        ("float8", 1.5),
        ("text", ""),
        ("text", "x\0\x10"),
        ("text", Size.LARGE),
        ("text", None),
        ("bytea", b""),
        ("bytea", b"\0\xff"),
        ("int", 7),
    ],
    ids=repr,
)
def test_values_are_read_unchanged(postgres, kind, value):
    assert read_value(postgres, kind, value) == value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("text[]", ("x", None, "", "{}", '"', "\\", "NULL", "\0\x10")),
        ("bigint[]", IntegerArray((1, None, -(2**62)))),
    ],
    ids=repr,
)
def test_arrays_are_sent_unchanged(postgres, kind, value):
    with recollect.open(postgres) as store, borrow_connection(store) as pipeline:
        statement = PreparedStatement(
            f"array_{kind}", f"SELECT x FROM unnest(:value::{kind}) WITH ORDINALITY AS t (x, n)"
        )
        pipeline.send(statement, [value])
        assert tuple(x for (x,) in pipeline.receive(end=True)[0]) == value


def read_value(url, kind, value):
    with recollect.open(url) as store, borrow_connection(store) as pipeline:
        statement = PreparedStatement(f"value_{kind}", f"SELECT :value::{kind}")
        pipeline.send(statement, statement.values({"value": value}))
        return pipeline.receive(end=True)[0][0][0]


def borrow_connection(store):
    return store._engine._server._connection(time.monotonic() + 60)


def test_a_single_surrogate_is_refused():
    with pytest.raises(recollect.InvalidValue, match="surrogate"):
        encode_text("\ud800")


def test_parameters_are_numbered_by_name():
    statement = PreparedStatement("x", "SELECT :a::bigint, :b, :a, 'x'::text")
    assert (statement.text, statement.names) == (b"SELECT $1::bigint, $2, $1, 'x'::text", ["a", "b"])
    assert statement.values({"a": 1, "b": "y", "c": 3}) == [1, "y"]


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
        call = session.tools.list()[0]
        assert (call.call_id, call.tool, call.status) == ("c\0\x10", "t\0", "success")
        assert session.messages()[1].tool_results[0].output == "r\0"
        store.records.put("s\0", "s\0", "v\0\x10")
        assert store.records.get("s\0", "s\0").value == "v\0\x10"
        assert store.records.get("s\0", "s") is None
        assert store.records.get("s", "s\0") is None
        session.update(task="\x10\x10p0")
        assert store.get_session("a").task == "\x10\x10p0"
        with pytest.raises(recollect.NotFound):
            store.find_session("no\0such")
