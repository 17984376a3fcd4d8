"""Stores with everything in them, made from a list of steps; and what must be equal after they travelled."""

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
from recollect.op import do
from recollect.testing import talk
from recollect.testing.place import contents

TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.just("$blob"), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
PAYLOAD = base64.b64encode(bytes(range(256)) * 12).decode()
NUMBER = st.integers(0, 9)

STEPS = st.one_of(
    st.tuples(st.just("said"), NUMBER, TEXT),
    st.tuples(st.just("talk"), NUMBER, st.sampled_from(["anthropic", "openai", "response"])),
    st.tuples(st.just("plain"), NUMBER, JSON),
    st.tuples(st.just("picture"), NUMBER, st.sampled_from(["data:image/png;base64,", ""])),
    st.tuples(st.just("asks"), NUMBER, NUMBER),
    st.tuples(st.just("answers"), NUMBER, NUMBER),
    st.tuples(st.just("starts"), NUMBER, NUMBER),
    st.tuples(st.just("turn"), NUMBER, st.sampled_from(["open", "completed", "failed", "cancelled", "stream", "saved"])),
    st.tuples(st.just("rewind"), NUMBER, NUMBER),
    st.tuples(st.just("switch"), NUMBER, NUMBER),
    st.tuples(st.just("fork"), NUMBER, NUMBER),
    st.tuples(st.just("delete"), NUMBER, NUMBER),
    st.tuples(st.just("update"), NUMBER, st.sampled_from([{"title": "Ä"}, {"pinned": True}, {"archived": True}, {"metadata": {"a": [1]}}, {"status": "failed"}])),
    st.tuples(st.just("compact"), NUMBER, TEXT.filter(str.isascii)),
    st.tuples(st.just("session"), NUMBER, st.sampled_from(["cli:a", "cli:b", "x", "cli:a:delegate:s"])),
)  # fmt: skip
WORLD = st.lists(STEPS, min_size=1, max_size=14)


def build(store, steps):
    """Do the steps; those that the store refuses, as it should, are passed over."""
    made = [store.session("cli:first")]
    for step, number, what in steps:
        session = made[number % len(made)]
        with contextlib.suppress(recollect.RecollectError):
            new = _do(store, session, step, number, what)
            if new is not None:
                made.append(new)
    return store


def _do(store, session, step, number, what):  # noqa: C901, PLR0912  one step, one case
    here = session.messages()
    at = here[what % len(here)].id if here and isinstance(what, int) else 0
    match step:
        case "said":
            session.append(talk.user(what))
        case "talk":
            said = {"anthropic": talk.ANTHROPIC_TALK, "openai": talk.OPENAI_TALK, "response": talk.ANTHROPIC_RESPONSE}
            session.append(said[what])
        case "plain":
            session.append({"role": "assistant", "parts": [{"kind": "data", "data": what}], "metadata": {"m": what}})
        case "picture":
            part = {"kind": "attachment", "mime_type": "image/png", "url": what + PAYLOAD}
            session.append({"role": "user", "parts": [part, {"kind": "data", "data": {"$blob": what}}]})
        case "asks":
            session.append(talk.asks(f"c{what}", "c0"))
        case "answers":
            session.append(talk.answers(f"c{what}"))
        case "starts":
            session.start_tool_call(f"c{what}")
        case "turn":
            _turn(session, what)
        case "rewind":
            session.rewind(at)
        case "switch":
            session.switch(what % 4 + 1)
        case "fork":
            return session.fork(at=at or None, id=f"fork:{number}:{what}")
        case "delete":
            session.delete_message(at)
        case "update":
            session.update(**what)
        case "compact":
            if here:
                session.compact(summary=what.strip() or "so far", keep_turns=0)
            session.snapshot("summary", what)
        case "session":
            return store.session(what, parent="cli:a" if ":delegate:" in what else None)
    return None


def _turn(session, how):
    if how == "saved":
        session.save_turn("q", talk.ANTHROPIC_RESPONSE, latency_ms=7)
        return
    turn = session.turn("question")
    if how == "stream":
        turn.stream().write("half an answer")
    elif how == "failed":
        turn.fail({"name": "E", "message": "\ud800"})
    elif how != "open":
        turn.add(talk.assistant("answer"))
        turn.complete() if how == "completed" else turn.cancel()


ROUNDS = itertools.count(5)


def _compacted(session, text, last):
    from recollect.op import one

    moment = next(ROUNDS)
    row = yield from one("session_get", owner="", id=session)
    named = {"branch": row[2], "created_at": moment, "undone_at": None}
    yield from do(
        "compaction_bring",
        **named,
        from_position=1,
        to_position=last,
        round=1,
        tokens_before=9,
        tokens_after=1,
        summary=text,
    )
    yield from do(
        "snapshot_bring",
        session=row[0],
        kind="memory",
        content='{"a":"ä"}',
        branch=row[2],
        position=max(last, 1),
        tokens=1,
        created_at=moment,
        updated_at=moment,
    )


def exported(store, ids=None, format="jsonl", **options):
    out = io.BytesIO()
    export.write(store, ids, format, out, **options)
    return out.getvalue()


def imported(text, store=None, **options):
    store = recollect.open(":memory:") if store is None else store
    return store, export.read(store, io.BytesIO(text), **options)


def everything(store):
    """All that a store says, but who holds its open turns, which is not told."""
    found = contents(store)
    found["created"].sort()  # sessions of one millisecond have no order
    for session in found["sessions"].values():
        session["turns"] = [
            msgspec.structs.replace(turn, holder=None, lease_until_at=None) for turn in session["turns"]
        ]
    for id in found["order"]:
        session = store.get_session(id)
        for format in FORMATS:
            found[id, format] = session.history(format)
    return found
