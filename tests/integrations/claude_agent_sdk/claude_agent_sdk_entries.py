"""Entries as Claude Code writes them, and random ones."""

from __future__ import annotations

import uuid

from hypothesis import strategies as st

_UUIDS = [str(uuid.UUID(int=number + 1)) for number in range(12)]


def make_uuid(number):
    """Return a uuid for a number."""
    return str(uuid.UUID(int=number))


def make_entries(count, *, session="5e551000-0000-4000-8000-000000000000", start=0, **fields):
    """Return the entries of a conversation: questions and answers in turn, and a title after each ten of them."""
    entries = []
    for number in range(start, start + count):
        role = "assistant" if number % 2 else "user"
        message = {"role": role, "content": f"Message {number}"}
        if role == "assistant":
            message = {
                **message, "id": f"msg_{session[:8]}_{number}", "type": "message", "model": "claude-test",
                "content": [{"type": "text", "text": f"Message {number}"}],
                "usage": {"input_tokens": 10, "output_tokens": number}, "stop_reason": "end_turn",
            }  # fmt: skip
        prefix = int(session[:8], 16) << 32
        entries.append({
            "parentUuid": make_uuid(prefix + number) if number else None, "isSidechain": False, "userType": "external",
            "cwd": "/home/ann/project", "sessionId": session, "version": "2.1.327", "gitBranch": "main", "type": role,
            "message": message, "uuid": make_uuid(prefix + number + 1),
            "timestamp": f"2026-11-0{1 + number // 1440 % 9}T{number // 60 % 24:02}:{number % 60:02}:00.000Z", **fields,
        })  # fmt: skip
        if number % 10 == 9:
            entries.append({"type": "custom-title", "customTitle": f"Title {number}", "sessionId": session})
    return entries


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=8), values, max_size=3),
    max_leaves=6,
)
_TEXT = st.text(max_size=20) | st.just("\ud800 half of a pair") | st.just("\0")
_BLOCKS = st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": _TEXT})
    | st.fixed_dictionaries({
        "type": st.just("tool_use"), "id": st.sampled_from(["call-1", "call-2"]), "name": _TEXT, "input": _JSON
    })
    | st.fixed_dictionaries({
        "type": st.just("tool_result"), "tool_use_id": st.sampled_from(["call-1", "call-2"]), "content": _TEXT
    })
    | _JSON,
    max_size=3,
)  # fmt: skip
_UUID = st.sampled_from(_UUIDS)
_TREE = st.fixed_dictionaries(
    {"type": st.sampled_from(["user", "assistant", "system", "attachment", "progress", "tool_use", "tool_result"])},
    optional={
        "uuid": _UUID,
        "parentUuid": st.none() | _UUID,
        "logicalParentUuid": _UUID,
        "sessionId": _TEXT,
        "isSidechain": st.booleans(),
        "agentId": st.sampled_from(["a", "b"]),
        "isCompactSummary": st.booleans(),
        "subtype": st.sampled_from(["compact_boundary", "local_command"]),
        "interruptedMessageId": _UUID,
        "forkedFrom": st.fixed_dictionaries({"sessionId": st.sampled_from(["s", "t"]), "messageUuid": _UUID}),
        "timestamp": st.sampled_from(["2026-11-19T10:00:00.000Z", "2026-11-19T11:00:00.000Z", "never"]),
        "cwd": _TEXT,
        "gitBranch": _TEXT,
        "message": st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant"]), "content": _TEXT | _BLOCKS},
            optional={"id": st.sampled_from(["msg-1", "msg-2"]), "model": _TEXT, "usage": _JSON},
        )
        | _JSON,
        "toolUseResult": _JSON,
        "attachment": st.fixed_dictionaries({"type": _TEXT, "prompt": _JSON}),
    },
)
_SETTINGS = st.fixed_dictionaries(
    {"type": st.sampled_from(["custom-title", "ai-title", "tag", "summary", "agent_metadata", "mode", "x", ""])},
    optional={
        "customTitle": _TEXT,
        "aiTitle": _TEXT,
        "tag": _TEXT,
        "summary": _TEXT,
        "leafUuid": _UUID,
        "agentType": _TEXT,
        "description": _TEXT,
        "uuid": _UUID,
        "other": _JSON,
    },
)
random_entries = _TREE | _SETTINGS
