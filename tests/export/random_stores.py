"""Random stores, built from a list of steps, and the contents that an export and import must preserve."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools

import msgspec
from hypothesis import strategies as st

import recollect
from recollect import export
from recollect.formats import FORMATS
from recollect.storage.operation import execute
from recollect_conformance import examples
from recollect_conformance.database import read_contents

TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.just("$blob"), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
PAYLOAD = base64.b64encode(bytes(range(256)) * 12).decode()
NUMBER = st.integers(0, 9)

STEP = st.one_of(
    st.tuples(st.just("message"), NUMBER, TEXT),
    st.tuples(st.just("conversation"), NUMBER, st.sampled_from(["anthropic", "openai", "response"])),
    st.tuples(st.just("data"), NUMBER, JSON),
    st.tuples(st.just("attachment"), NUMBER, st.sampled_from(["data:image/png;base64,", ""])),
    st.tuples(st.just("tool_call"), NUMBER, NUMBER),
    st.tuples(st.just("tool_result"), NUMBER, NUMBER),
    st.tuples(st.just("start_tool_call"), NUMBER, NUMBER),
    st.tuples(st.just("turn"), NUMBER, st.sampled_from(["open", "completed", "failed", "cancelled", "stream", "saved"])),
    st.tuples(st.just("rewind"), NUMBER, NUMBER),
    st.tuples(st.just("switch"), NUMBER, NUMBER),
    st.tuples(st.just("fork"), NUMBER, NUMBER),
    st.tuples(st.just("delete"), NUMBER, NUMBER),
    st.tuples(st.just("key"), NUMBER, st.text(min_size=1, max_size=3)),
    st.tuples(st.just("replace"), NUMBER, NUMBER),
    st.tuples(st.just("erase"), NUMBER, NUMBER),
    st.tuples(st.just("mark"), NUMBER, NUMBER),
    st.tuples(st.just("pop"), NUMBER, NUMBER),
    st.tuples(st.just("update"), NUMBER, st.sampled_from([{"title": "Ä"}, {"pinned": True}, {"archived": True}, {"metadata": {"a": [1]}}, {"status": "failed"}, {"labels": ["b", "ä"]}, {"labels": []}])),
    st.tuples(st.just("compact"), NUMBER, TEXT.filter(str.isascii)),
    st.tuples(st.just("session"), NUMBER, st.sampled_from(["cli:a", "cli:b", "x", "cli:a:delegate:s"])),
)  # fmt: skip
STORE_STEPS = st.lists(STEP, min_size=1, max_size=14)


def build_store(store, steps):
    """Apply the steps to a store and return it. Skip steps that the store refuses."""
    sessions = [store.session("cli:first")]
    for step, number, value in steps:
        session = sessions[number % len(sessions)]
        with contextlib.suppress(recollect.RecollectError):
            new = _apply_step(store, session, step, number, value)
            if new is not None:
                sessions.append(new)
    return store


def _message_at(messages, number):
    return messages[number % len(messages)].id if messages and isinstance(number, int) else 0


def _apply_step(store, session, step, number, value):  # noqa: C901, PLR0912  one case per step
    messages = session.messages()
    message_id = _message_at(messages, value)
    match step:
        case "message":
            session.append(examples.user(value))
        case "conversation":
            conversations = {
                "anthropic": examples.ANTHROPIC_MESSAGES,
                "openai": examples.OPENAI_MESSAGES,
                "response": examples.ANTHROPIC_RESPONSE,
            }
            session.append(conversations[value])
        case "data":
            session.append({"role": "assistant", "parts": [{"kind": "data", "data": value}], "metadata": {"m": value}})
        case "attachment":
            part = {"kind": "attachment", "mime_type": "image/png", "url": value + PAYLOAD}
            session.append({"role": "user", "parts": [part, {"kind": "data", "data": {"$blob": value}}]})
        case "tool_call":
            session.append(examples.tool_call_message(f"c{value}", "c0"))
        case "tool_result":
            session.append(examples.tool_result_message(f"c{value}"))
        case "start_tool_call":
            session.tools.start(f"c{value}")
        case "turn":
            _add_turn(session, value)
        case "rewind":
            session.rewind(message_id)
        case "switch":
            session.branches.switch(value % 4 + 1)
        case "fork":
            return session.fork(at=message_id or None, id=f"fork:{number}:{value}")
        case "delete":
            session.delete_messages([message_id])
        case "key" | "replace" | "erase" | "mark" | "pop":
            _edit(session, step, number, value, message_id)
        case "update":
            session.update(**value)
        case "compact":
            if messages:
                session.compact(summary=value.strip() or "so far", keep_turns=0)
            session.snapshots.add("summary", value)
        case "session":
            return store.session(value, parent="cli:a" if ":delegate:" in value else None)
    return None


def _edit(session, step, number, value, message_id):
    match step:
        case "key":
            session.append(recollect.Draft(role="user", parts=(recollect.TextPart(text=f"{number}"),), key=value))
        case "mark":
            session.mark_message(message_id, {"m": number, "pinned": number % 2 == 0, "x": None})
        case "pop":
            session.pop(1 + value % 2)
        case _:
            contents = (
                examples.user(f"changed {number}"),
                {"role": "user", "parts": [{"kind": "attachment", "data": PAYLOAD + "AAAA" * number}]},
                examples.tool_call_message(f"c{number}", "c0"),
                examples.tool_result_message(f"c{number}"),
            )
            session.replace_message(message_id, contents[number % len(contents)], erase=step == "erase")


def _add_turn(session, status):
    if status == "saved":
        session.save_turn("q", examples.ANTHROPIC_RESPONSE, latency_ms=7)
        return
    turn = session.turn("question")
    if status == "stream":
        turn.stream().write("half an answer")
    elif status == "failed":
        turn.fail({"name": "E", "message": "\ud800"})
    elif status != "open":
        turn.add(examples.assistant("answer"))
        turn.complete() if status == "completed" else turn.cancel()


TIMES = itertools.count(5)


def import_compaction(session, text, last):
    from recollect.storage.operation import fetch_one
    from recollect.storage.sessions import SESSION_GET

    time = next(TIMES)
    row = yield from fetch_one(SESSION_GET, owner="", id=session)
    assert row is not None
    columns = {"branch": row.head, "created_at": time, "undone_at": None}
    yield from execute(
        "compaction_import",
        **columns,
        from_position=1,
        to_position=last,
        round=1,
        tokens_before=9,
        tokens_after=1,
        summary=text,
    )
    yield from execute(
        "snapshot_import",
        session=row.session,
        kind="memory",
        content='{"a":"ä"}',
        branch=row.head,
        position=max(last, 1),
        tokens=1,
        created_at=time,
        updated_at=time,
    )


def export_bytes(store, ids=None, format="jsonl", **options):
    out = io.BytesIO()
    export.write(store, ids, format, out, **options)
    return out.getvalue()


def import_bytes(text, store=None, **options):
    store = recollect.open(":memory:") if store is None else store
    return store, export.read(store, io.BytesIO(text), **options)


def read_everything(store):
    """Return the contents of a store except holders and leases of open turns, which are not exported.

    Compactions and snapshots are numbered per database; here they are numbered per session.
    """
    contents = read_contents(store)
    contents["created"].sort()  # sessions of the same millisecond have no order
    for session in contents["sessions"].values():
        session["turns"] = [
            msgspec.structs.replace(turn, holder=None, lease_until_at_ms=None) for turn in session["turns"]
        ]
        for kind in ("compactions", "snapshots"):
            session[kind] = [msgspec.structs.replace(item, id=number) for number, item in enumerate(session[kind], 1)]
    for id in contents["order"]:
        session = store.get_session(id)
        for format in FORMATS:
            contents[id, format] = session.history(format)
    return contents
