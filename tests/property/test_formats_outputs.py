"""Calls of the Responses API that are no functions: each is answered by an output of its own type, or left out."""

from __future__ import annotations

from typing import Any

import pytest
from formats_examples import assert_valid
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recollect
from recollect import formats
from recollect.context.answering import INTERRUPTED
from recollect.context.history import History, history
from recollect.context.repair import is_sound, mend
from recollect.context.rules import RULES
from recollect.model.message import Message

NAME = "openai-responses"
ASK: dict[str, Any] = {"role": "user", "content": "please"}
CUSTOM = {"type": "custom_tool_call", "call_id": "c", "name": "run", "input": "print(1)"}
LOCAL = {
    "type": "local_shell_call",
    "id": "ls_1",
    "call_id": "c",
    "status": "completed",
    "action": {"type": "exec", "command": ["ls"], "env": {}},
}
SHELL = {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}, "status": "completed"}
PATCH = {
    "type": "apply_patch_call",
    "call_id": "c",
    "status": "completed",
    "operation": {"type": "delete_file", "path": "a.txt"},
}
COMPUTER = {
    "type": "computer_call",
    "id": "cu_1",
    "call_id": "c",
    "status": "completed",
    "pending_safety_checks": [],
    "action": {"type": "screenshot"},
}
APPROVAL = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "f", "server_label": "s", "arguments": "{}"}
APPROVED = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
SHOT = {
    "type": "computer_call_output",
    "call_id": "c",
    "output": {"type": "computer_screenshot", "image_url": "https://example.org/a.png"},
}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}
PRINTED = [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
MADE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (CUSTOM, {"type": "custom_tool_call_output", "call_id": "c", "output": INTERRUPTED}),
    (LOCAL, {"type": "local_shell_call_output", "id": "c", "output": INTERRUPTED, "status": "incomplete"}),
    (SHELL, {"type": "shell_call_output", "call_id": "c", "output": [], "status": "incomplete"}),
    (PATCH, {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": INTERRUPTED}),
]


def view(*items: Any, format: str = NAME, one_by_one: bool = False) -> History:
    """Store items, as a list or one by one, and give the view of them."""
    with recollect.open(":memory:") as store:
        session = store.session("a")
        for some in items if one_by_one else [list(items)]:
            session.append(some, format=NAME)
        found = session.history(format)
        assert_valid(list(found), format)
        return found


def kinds(found: History) -> list[str]:
    return [repair.kind for repair in found.repairs]


@pytest.mark.parametrize(("call", "output"), MADE, ids=[call["type"] for call, _ in MADE])
@pytest.mark.parametrize("one_by_one", [True, False])
def test_an_interrupted_call_is_answered_in_its_own_type(call: Any, output: Any, one_by_one: bool) -> None:
    found = view(ASK, THOUGHT, call, {"role": "user", "content": "next"}, one_by_one=one_by_one)
    assert found[2:4] == [call, output]
    assert kinds(found) == ["interrupted_call"]
    assert not any(item.get("type") == "function_call_output" for item in found)


@pytest.mark.parametrize(("call", "output"), MADE, ids=[call["type"] for call, _ in MADE])
def test_a_recorded_result_is_an_output_of_the_type_of_its_call(call: Any, output: Any) -> None:
    with recollect.open(":memory:") as store:
        session = store.session("a")
        session.append([ASK, call], format=NAME)
        session.record_tool_result("c", "listed")
        found = session.history(NAME)
    assert_valid(list(found), NAME)
    assert (found.repairs, found[2]["type"]) == ([], output["type"])
    assert "listed" in str(found[2])
    assert found[2].get("status") in (None, "completed")


@pytest.mark.parametrize(("status", "code"), [("success", 0), ("error", 1)])
def test_what_a_shell_printed(status: Any, code: int) -> None:
    with recollect.open(":memory:") as store:
        for name, output in (("text", "told"), ("printed", PRINTED)):
            session = store.session(name)
            session.append([ASK, SHELL], format=NAME)
            session.record_tool_result("c", output, status=status)
            found = session.history(NAME)
            assert_valid(list(found), NAME)
            (piece,) = found[2]["output"]
            assert piece == PRINTED[0] if name == "printed" else piece["outcome"]["exit_code"] == code
            assert name == "printed" or piece["stderr" if code else "stdout"] == "told"


@pytest.mark.parametrize("one_by_one", [True, False])
def test_a_computer_call_without_a_screenshot_is_left_out(one_by_one: bool) -> None:
    found = view(ASK, THOUGHT, COMPUTER, {"role": "user", "content": "next"}, one_by_one=one_by_one)
    assert list(found) == [ASK, {"role": "user", "content": "next"}]
    assert kinds(found)[0] == "unanswered_call"
    assert found.repairs[0].call_id == "c"
    assert "screenshot" in found.repairs[0].sentence


def test_a_computer_call_that_words_answer_is_left_out_with_them() -> None:
    with recollect.open(":memory:") as store:
        session = store.session("a")
        session.append([ASK, THOUGHT, COMPUTER], format=NAME)
        session.record_tool_result("c", "seen")
        session.append({"role": "assistant", "content": "done"})
        found = session.history(NAME)
        assert [item.state for item in session.messages()] == ["completed"] * 4
        assert session.tool_calls()[0].status == "success"
    assert list(found) == [ASK, {"role": "assistant", "content": "done"}]
    assert kinds(found) == ["unanswered_call", "orphan_result", "last_reasoning"]


def test_a_screenshot_answers_a_computer_call() -> None:
    items = [ASK, THOUGHT, COMPUTER, SHOT]
    found = view(*items)
    assert (list(found), found.repairs) == (items, [])


@pytest.mark.parametrize("one_by_one", [True, False])
def test_an_approval_that_nobody_gave_is_left_out(one_by_one: bool) -> None:
    call = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
    words = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
        {"type": "output_text", "text": "may I?", "annotations": []},
    ]}  # fmt: skip
    found = view(ASK, call, APPROVAL, words, one_by_one=one_by_one)
    assert list(found) == [ASK, call, words]
    assert [(repair.kind, repair.call_id) for repair in found.repairs] == [("unanswered_call", "mcpr_1")]


def test_approvals_and_their_answers() -> None:
    found = view(ASK, APPROVAL, APPROVED)
    assert (list(found), found.repairs) == ([ASK, APPROVAL, APPROVED], [])
    found = view(ASK, APPROVED, APPROVAL)
    assert (list(found), sorted(kinds(found))) == ([ASK], ["orphan_result", "unanswered_call"])
    found = view(ASK, APPROVAL, APPROVED, APPROVED)
    assert (list(found), kinds(found)) == ([ASK, APPROVAL, APPROVED], ["orphan_result"])


def stored(messages: list[dict[str, Any]], format: str) -> list[Message]:
    return [
        Message(1, position, draft.role, draft.parts, 0, format=draft.format, native=draft.native)
        for position, draft in enumerate(formats.read(messages, format), 1)
    ]


def test_custom_calls_stay_custom_between_openais_formats() -> None:
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": "1"}
    call = {"id": "c", "type": "custom", "custom": {"name": "run", "input": "print(1)"}}
    chat = [
        ASK,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ]
    items = [ASK, CUSTOM, output]
    assert formats.write(stored(items, NAME), "openai") == chat
    assert formats.write(stored(chat, "openai"), NAME) == items
    assert_valid(chat, "openai")
    assert_valid(items, NAME)
    for target in ("anthropic", "ai-sdk", "ai-sdk-ui"):
        for messages, source in ((chat, "openai"), (items, NAME)):
            written = formats.write(stored(messages, source), target)
            assert_valid(written, target)
            assert "print(1)" in str(written)


def test_a_custom_call_of_chat_that_was_interrupted() -> None:
    call = {"id": "c", "type": "custom", "custom": {"name": "run", "input": "print(1)"}}
    with recollect.open(":memory:") as store:
        session = store.session("a")
        session.append([ASK, {"role": "assistant", "content": None, "tool_calls": [call]}], format="openai")
        found = session.history(NAME)
    assert_valid(list(found), NAME)
    assert found[1:] == [CUSTOM, MADE[0][1]]


def test_the_same_id_for_a_custom_call_and_later_for_a_function() -> None:
    function = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    custom = {"type": "custom_tool_call_output", "call_id": "c", "output": "1"}
    plain = {"role": "tool", "tool_call_id": "c", "content": "2"}
    messages = stored([ASK, CUSTOM, custom], NAME) + stored([function], NAME) + stored([plain], "openai")
    assert [item.get("type") for item in formats.write(messages, NAME)][-1] == "function_call_output"


OUTPUTS: dict[str, dict[str, Any]] = {
    "function_call": {"type": "function_call_output", "output": "1"},
    "custom_tool_call": {"type": "custom_tool_call_output", "output": "1"},
    "local_shell_call": {"type": "local_shell_call_output", "output": "1"},
    "shell_call": {"type": "shell_call_output", "output": PRINTED},
    "apply_patch_call": {"type": "apply_patch_call_output", "status": "completed"},
    "computer_call": {"type": "computer_call_output", "output": SHOT["output"]},
}
FUNCTION = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
CALLS = [FUNCTION, CUSTOM, LOCAL, SHELL, PATCH, COMPUTER]
ids = st.sampled_from(["a", "b", "c"])


def answered(call: dict[str, Any], id: str) -> dict[str, Any]:
    """Give the output of a call under an id."""
    output = OUTPUTS[call["type"]]
    return {**output, ("id" if call is LOCAL else "call_id"): f"{call['type']}_{id}"}


items = st.one_of(
    st.builds(lambda call, name: {**call, "call_id": f"{call['type']}_{name}"}, st.sampled_from(CALLS), ids),
    st.builds(answered, st.sampled_from(CALLS), ids),
    st.builds(lambda name: {**APPROVAL, "id": name}, ids),
    st.builds(lambda name: {**APPROVED, "approval_request_id": name}, ids),
    st.sampled_from([ASK, THOUGHT, {"role": "assistant", "content": "well"}]),
)
recorded = st.builds(
    lambda call, name: {"role": "tool", "tool_call_id": f"{call['type']}_{name}", "content": "told"},
    st.sampled_from(CALLS),
    ids,
)
pieces = st.one_of(
    st.lists(items, min_size=1, max_size=6).map(lambda some: (some, NAME)), recorded.map(lambda one: ([one], "openai"))
)


def uneven(found: list[dict[str, Any]]) -> str | None:
    """Say which call or request is not answered by an output of its type; None where all are."""
    waiting: dict[str, str] = {}
    for item in found:
        kind = item.get("type", "message")
        if kind in OUTPUTS:
            waiting[item["call_id"]] = OUTPUTS[kind]["type"]
        elif kind.endswith("_output"):
            id = item["id" if kind == "local_shell_call_output" else "call_id"]
            if waiting.pop(id, None) != kind:
                return f"{kind} of {id}"
        elif kind == "mcp_approval_request":
            waiting[item["id"]] = kind
        elif kind == "mcp_approval_response" and waiting.pop(item["approval_request_id"], None) is None:
            return f"{kind} of {item['approval_request_id']}"
    return str(waiting) if waiting else None


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(talk=st.lists(pieces, max_size=5))
def test_whatever_was_cut_off_the_view_comes_out_even(talk: list[tuple[list[Any], str]]) -> None:
    drafts = [draft for some, format in talk for draft in formats.read(some, format)]
    messages = [
        Message(1, position, draft.role, draft.parts, 0, format=draft.format, native=draft.native)
        for position, draft in enumerate(drafts, 1)
    ]
    found = history(messages, NAME)
    assert uneven(found) is None
    assert_valid(list(found), NAME)
    if is_sound(messages, RULES[NAME]):
        assert mend(messages, RULES[NAME])[1] == []
    for other in ("openai", "anthropic"):
        assert_valid(list(history(messages, other)), other)
