"""Calls of the Responses API other than functions: each gets an output of its own type, or is omitted."""

from __future__ import annotations

from typing import Any

import pytest
from formats_examples import assert_valid
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recollect
from recollect import formats
from recollect.history.render import History, render_history
from recollect.history.repair import INTERRUPTED, is_valid, repair_messages
from recollect.model.message import Message

FORMAT = "openai-responses"
QUESTION: dict[str, Any] = {"role": "user", "content": "please"}
CUSTOM = {"type": "custom_tool_call", "call_id": "c", "name": "run", "input": "print(1)"}
LOCAL_SHELL = {
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
APPROVAL_REQUEST = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "f", "server_label": "s", "arguments": "{}"}
APPROVAL_RESPONSE = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
SCREENSHOT = {
    "type": "computer_call_output",
    "call_id": "c",
    "output": {"type": "computer_screenshot", "image_url": "https://example.org/a.png"},
}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
SHELL_OUTPUT = [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
INTERRUPTED_OUTPUTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (CUSTOM, {"type": "custom_tool_call_output", "call_id": "c", "output": INTERRUPTED}),
    (LOCAL_SHELL, {"type": "local_shell_call_output", "id": "c", "output": INTERRUPTED, "status": "incomplete"}),
    (SHELL, {"type": "shell_call_output", "call_id": "c", "output": [], "status": "incomplete"}),
    (PATCH, {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": INTERRUPTED}),
]


def history_of(*items: Any, format: str = FORMAT, one_by_one: bool = False) -> History:
    """Store items, as a list or one by one, and return their history."""
    with recollect.open(":memory:") as store:
        session = store.session("a")
        for batch in items if one_by_one else [list(items)]:
            session.append(batch, format=FORMAT)
        history = session.history(format)
        assert_valid(list(history), format)
        return history


def repair_kinds(history: History) -> list[str]:
    return [repair.kind for repair in history.repairs]


@pytest.mark.parametrize(("call", "output"), INTERRUPTED_OUTPUTS, ids=[call["type"] for call, _ in INTERRUPTED_OUTPUTS])
@pytest.mark.parametrize("one_by_one", [True, False])
def test_an_interrupted_call_gets_an_output_of_its_own_type(call: Any, output: Any, one_by_one: bool) -> None:
    history = history_of(QUESTION, REASONING, call, {"role": "user", "content": "next"}, one_by_one=one_by_one)
    assert history[2:4] == [call, output]
    assert repair_kinds(history) == ["interrupted_call"]
    assert not any(item.get("type") == "function_call_output" for item in history)


@pytest.mark.parametrize(("call", "output"), INTERRUPTED_OUTPUTS, ids=[call["type"] for call, _ in INTERRUPTED_OUTPUTS])
def test_a_recorded_result_has_the_output_type_of_its_call(call: Any, output: Any) -> None:
    with recollect.open(":memory:") as store:
        session = store.session("a")
        session.append([QUESTION, call], format=FORMAT)
        session.tools.record_result("c", "listed")
        history = session.history(FORMAT)
    assert_valid(list(history), FORMAT)
    assert (history.repairs, history[2]["type"]) == ([], output["type"])
    assert "listed" in str(history[2])
    assert history[2].get("status") in (None, "completed")


@pytest.mark.parametrize(("status", "code"), [("success", 0), ("error", 1)])
def test_the_output_of_a_shell_call(status: Any, code: int) -> None:
    with recollect.open(":memory:") as store:
        for name, output in (("text", "done"), ("output", SHELL_OUTPUT)):
            session = store.session(name)
            session.append([QUESTION, SHELL], format=FORMAT)
            session.tools.record_result("c", output, status=status)
            history = session.history(FORMAT)
            assert_valid(list(history), FORMAT)
            (piece,) = history[2]["output"]
            assert piece == SHELL_OUTPUT[0] if name == "output" else piece["outcome"]["exit_code"] == code
            assert name == "output" or piece["stderr" if code else "stdout"] == "done"


@pytest.mark.parametrize("one_by_one", [True, False])
def test_a_computer_call_without_a_screenshot_is_omitted(one_by_one: bool) -> None:
    history = history_of(QUESTION, REASONING, COMPUTER, {"role": "user", "content": "next"}, one_by_one=one_by_one)
    assert list(history) == [QUESTION, {"role": "user", "content": "next"}]
    assert repair_kinds(history)[0] == "unanswered_call"
    assert history.repairs[0].call_id == "c"
    assert "screenshot" in history.repairs[0].sentence


def test_a_computer_call_with_a_text_result_is_omitted_with_it() -> None:
    with recollect.open(":memory:") as store:
        session = store.session("a")
        session.append([QUESTION, REASONING, COMPUTER], format=FORMAT)
        session.tools.record_result("c", "text")
        session.append({"role": "assistant", "content": "done"})
        history = session.history(FORMAT)
        assert [item.state for item in session.messages()] == ["completed"] * 4
        assert session.tools.list()[0].status == "success"
    assert list(history) == [QUESTION, {"role": "assistant", "content": "done"}]
    assert repair_kinds(history) == ["unanswered_call", "orphan_result", "last_reasoning"]


def test_a_screenshot_answers_a_computer_call() -> None:
    items = [QUESTION, REASONING, COMPUTER, SCREENSHOT]
    history = history_of(*items)
    assert (list(history), history.repairs) == (items, [])


@pytest.mark.parametrize("one_by_one", [True, False])
def test_an_unanswered_approval_request_is_omitted(one_by_one: bool) -> None:
    call = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
    answer = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
        {"type": "output_text", "text": "may I?", "annotations": []},
    ]}  # fmt: skip
    history = history_of(QUESTION, call, APPROVAL_REQUEST, answer, one_by_one=one_by_one)
    assert list(history) == [QUESTION, call, answer]
    assert [(repair.kind, repair.call_id) for repair in history.repairs] == [("unanswered_call", "mcpr_1")]


def test_approval_requests_and_responses() -> None:
    history = history_of(QUESTION, APPROVAL_REQUEST, APPROVAL_RESPONSE)
    assert (list(history), history.repairs) == ([QUESTION, APPROVAL_REQUEST, APPROVAL_RESPONSE], [])
    history = history_of(QUESTION, APPROVAL_RESPONSE, APPROVAL_REQUEST)
    assert (list(history), sorted(repair_kinds(history))) == ([QUESTION], ["orphan_result", "unanswered_call"])
    history = history_of(QUESTION, APPROVAL_REQUEST, APPROVAL_RESPONSE, APPROVAL_RESPONSE)
    assert (list(history), repair_kinds(history)) == (
        [QUESTION, APPROVAL_REQUEST, APPROVAL_RESPONSE],
        ["orphan_result"],
    )


def stored_messages(messages: list[dict[str, Any]], format: str) -> list[Message]:
    return [
        Message(1, position, draft.role, draft.parts, 0, format=draft.format, native=draft.native)
        for position, draft in enumerate(formats.read(messages, format), 1)
    ]


def test_custom_calls_stay_custom_between_openai_formats() -> None:
    result = {"type": "custom_tool_call_output", "call_id": "c", "output": "1"}
    call = {"id": "c", "type": "custom", "custom": {"name": "run", "input": "print(1)"}}
    chat = [
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ]
    items = [QUESTION, CUSTOM, result]
    assert formats.write(stored_messages(items, FORMAT), "openai") == chat
    assert formats.write(stored_messages(chat, "openai"), FORMAT) == items
    assert_valid(chat, "openai")
    assert_valid(items, FORMAT)
    for target in ("anthropic", "ai-sdk", "ai-sdk-ui"):
        for messages, source in ((chat, "openai"), (items, FORMAT)):
            output = formats.write(stored_messages(messages, source), target)
            assert_valid(output, target)
            assert "print(1)" in str(output)


def test_an_interrupted_custom_call_of_chat_completions() -> None:
    call = {"id": "c", "type": "custom", "custom": {"name": "run", "input": "print(1)"}}
    with recollect.open(":memory:") as store:
        session = store.session("a")
        session.append([QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]}], format="openai")
        history = session.history(FORMAT)
    assert_valid(list(history), FORMAT)
    assert history[1:] == [CUSTOM, INTERRUPTED_OUTPUTS[0][1]]


def test_a_custom_call_and_a_later_function_call_with_the_same_id() -> None:
    function = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    custom = {"type": "custom_tool_call_output", "call_id": "c", "output": "1"}
    plain = {"role": "tool", "tool_call_id": "c", "content": "2"}
    messages = (
        stored_messages([QUESTION, CUSTOM, custom], FORMAT)
        + stored_messages([function], FORMAT)
        + stored_messages([plain], "openai")
    )
    assert [item.get("type") for item in formats.write(messages, FORMAT)][-1] == "function_call_output"


OUTPUTS: dict[str, dict[str, Any]] = {
    "function_call": {"type": "function_call_output", "output": "1"},
    "custom_tool_call": {"type": "custom_tool_call_output", "output": "1"},
    "local_shell_call": {"type": "local_shell_call_output", "output": "1"},
    "shell_call": {"type": "shell_call_output", "output": SHELL_OUTPUT},
    "apply_patch_call": {"type": "apply_patch_call_output", "status": "completed"},
    "computer_call": {"type": "computer_call_output", "output": SCREENSHOT["output"]},
}
FUNCTION = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
CALLS = [FUNCTION, CUSTOM, LOCAL_SHELL, SHELL, PATCH, COMPUTER]
ids = st.sampled_from(["a", "b", "c"])


def output_of(call: dict[str, Any], id: str) -> dict[str, Any]:
    """Return the output of a call with an id."""
    output = OUTPUTS[call["type"]]
    return {**output, ("id" if call is LOCAL_SHELL else "call_id"): f"{call['type']}_{id}"}


items = st.one_of(
    st.builds(lambda call, name: {**call, "call_id": f"{call['type']}_{name}"}, st.sampled_from(CALLS), ids),
    st.builds(output_of, st.sampled_from(CALLS), ids),
    st.builds(lambda name: {**APPROVAL_REQUEST, "id": name}, ids),
    st.builds(lambda name: {**APPROVAL_RESPONSE, "approval_request_id": name}, ids),
    st.sampled_from([QUESTION, REASONING, {"role": "assistant", "content": "well"}]),
)
recorded_results = st.builds(
    lambda call, name: {"role": "tool", "tool_call_id": f"{call['type']}_{name}", "content": "done"},
    st.sampled_from(CALLS),
    ids,
)
batches = st.one_of(
    st.lists(items, min_size=1, max_size=6).map(lambda batch: (batch, FORMAT)),
    recorded_results.map(lambda result: ([result], "openai")),
)


def unmatched_call(history: list[dict[str, Any]]) -> str | None:
    """Return the first output without a call of its type, or the calls and requests without an output, or None."""
    waiting: dict[str, str] = {}
    for item in history:
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
@given(conversation=st.lists(batches, max_size=5))
def test_every_call_in_a_repaired_history_has_its_output(conversation: list[tuple[list[Any], str]]) -> None:
    drafts = [draft for batch, format in conversation for draft in formats.read(batch, format)]
    messages = [
        Message(1, position, draft.role, draft.parts, 0, format=draft.format, native=draft.native)
        for position, draft in enumerate(drafts, 1)
    ]
    history = render_history(messages, FORMAT)
    assert unmatched_call(history) is None
    assert_valid(list(history), FORMAT)
    if is_valid(messages, formats.load_rules(FORMAT)):
        assert repair_messages(messages, formats.load_rules(FORMAT))[1] == []
    for other in ("openai", "anthropic"):
        assert_valid(list(render_history(messages, other)), other)
