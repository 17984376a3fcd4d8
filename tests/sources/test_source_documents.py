from __future__ import annotations

import io
import itertools
import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.model.json import decode
from recollect.sources import documents
from recollect.sources.documents import DamagedArray, elements, order_tree
from recollect.sources.files import open_tree
from recollect.sources.json_fields import from_iso, from_seconds, message_key, session_id
from recollect.sources.source import Note

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\{}[],é\n') | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='a"\\]}'), inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(VALUES, max_size=5), st.integers(1, 9), st.sampled_from([None, 1]))
@settings(deadline=None)
def test_elements_are_those_of_the_array_in_chunks_of_any_size(values, size, indent):
    class Chunks(io.BytesIO):
        def read(self, _size=-1):
            return super().read(size)

    new_events = list(elements(Chunks(json.dumps(values, indent=indent).encode())))
    assert [decode(text) for text in new_events] == values


@pytest.mark.parametrize("text", ["[1, 2", '[{"a": "', "[[[", '["\\', "["])
def test_an_array_without_an_end_is_reported(text):
    with pytest.raises(DamagedArray, match="truncated"):
        list(elements(io.BytesIO(text.encode())))


@pytest.mark.parametrize("filler", [b"x", b"\\\\", b"[],", b'\\"'])
def test_an_element_that_is_too_long_is_left_out_and_those_after_it_are_read(filler):
    long = b'"' + filler * 2_000_000 + b'"'
    data = b'[1, {"a": [' + long + b'], "b": "]"}, {"c": 2}, ' + long + b', "d"]'
    assert list(elements(io.BytesIO(data), 1000)) == [b"1", None, b'{"c": 2}', None, b'"d"']


def test_a_document_reports_an_entry_that_is_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_ELEMENT_BYTES", 1000)
    monkeypatch.setattr(elements, "__defaults__", (1000,))
    for name, data in (("x.json", b'[{"a": "%s"}, {"a": 2}]'), ("x.jsonl", b'{"a": "%s"}\n{"a": 2}\n')):
        (tmp_path / name).write_bytes(data % (b"x" * 3_000_000))
        note, element = documents.document_elements(open_tree(tmp_path), name)
        assert isinstance(note, Note)
        assert (note.kind, note.text) == ("skipped", "A conversation has more than 1,000 bytes.")
        assert isinstance(element, documents.Element)
        assert element.value == {"a": 2}


def test_a_large_array_needs_little_memory():
    class Large(io.RawIOBase):
        """200 MB: an array of equal conversations."""

        def __init__(self):
            conversation = b'{"mapping": "' + b"x" * 100_000 + b'"},'
            self.chunks = itertools.chain([b"["], itertools.repeat(conversation, 1999), [b"1]"])

        def read(self, _size=-1):
            return next(self.chunks, b"")

    tracemalloc.start()
    count = sum(1 for _ in elements(Large()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 2000
    assert peak < 5_000_000


@given(st.dictionaries(st.integers(0, 8).map(str), st.none() | st.integers(0, 9).map(str), max_size=9))
def test_a_tree_has_each_node_once_with_its_parent_before_it(parents):
    earlier = set()
    for node in order_tree(parents):
        assert node.parent is None or node.parent in earlier
        assert node.parent in (None, parents[node.id])
        earlier.add(node.id)
    assert earlier == parents.keys()


def test_a_long_chain_and_a_large_cycle_are_ordered_quickly():
    chain = {str(number): str(number - 1) for number in range(100_000)}
    assert [node.id for node in order_tree(chain)][:3] == ["0", "1", "2"]
    assert len(order_tree({**chain, "0": "99999"})) == 100_000


def test_times():
    assert from_iso("2023-10-07T07:03:01.693863+") == from_iso("2023-10-07 07:03:01.693Z") == 1696662181693
    assert from_iso("2024-01-01T02:00:00+02:00") == 1704067200000
    assert from_seconds("1730000000.5") == from_seconds(1730000000.5) == 1730000000500
    for value in (None, "", "x", float("nan"), float("inf"), -1, 10**30, True, [], "0000-00-00T00:00:00"):
        assert from_seconds(value) is None
        assert from_iso(value) is None


def test_ids_that_no_store_accepts_are_hashed():
    for text in ("x" * 600, "a\nb", " ", "\ud800", ""):
        assert session_id("chatgpt", text) == session_id("chatgpt", text)
        assert len(session_id("chatgpt", text)) == len("chatgpt:") + 32
    assert session_id("chatgpt", "a b") == "chatgpt:a b"
    assert len(message_key("é" * 600)) == 32
    assert message_key("\x00") == "\x00"


def test_a_single_document_with_a_byte_order_mark(tmp_path):
    (tmp_path / "x.json").write_bytes(b'\xef\xbb\xbf {"a": 1}')
    (element,) = documents.document_elements(open_tree(tmp_path), "x.json")
    assert isinstance(element, documents.Element)
    assert element.value == {"a": 1}
