"""`sessions show`: a conversation, by id, title or prefix, as text and as JSON."""

from __future__ import annotations

import contextlib
import json

import pytest
from cli_messages import user_message

import recollect


def test_by_id_by_title_and_by_prefix(call, session):
    output = call("sessions", "show", session.id).stdout
    assert call("sessions", "show", "About the README").stdout == output
    assert call("sessions", "show", session.id[:9]).stdout == output


def test_the_parts_of_a_session_in_order(call, session):
    output = call("sessions", "show", session.id).stdout
    expected = ["About the README", session.id, "some-model", "2 messages", "user  1.1", "What is in README.md?", "assistant  1.2",
            "┊ I must look.", "Let me see.", '→ read {"path": "README.md"} ✓', "tool  1.3", "← read", "    # Title", "    text",
            "assistant  1.4", "It has a title."]  # fmt: skip
    positions = [output.index(text) for text in expected]
    assert positions == sorted(positions)


def test_a_failed_tool_an_attachment_data_and_a_cut_off_answer(call, store):
    session = store.session("cli:a")
    session.append({"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "run", "input": {}}]})
    session.tools.record_result("c", status="error", error_code="E7", error_message="it broke", latency_ms=1500)
    image = recollect.AttachmentPart(mime_type="image/png", name="cat\x1b.png", size=12_345)
    session.append(recollect.Draft(role="user", parts=(image, recollect.DataPart(native={"type": "poll"}))))
    with contextlib.suppress(RuntimeError), session.turn("Go") as turn, turn.stream() as answer:
        answer.write("half")
        raise RuntimeError
    output = call("sessions", "show", "cli:a").stdout
    for text in ("✗ 1.5 s", "← run ✗ E7", "it broke", "[cat␛.png, image/png, 12 kB]", "[poll]", "half", "error"):
        assert text in output


def test_the_error_of_a_turn_is_shown(call, store):
    session = store.session("cli:a")
    with contextlib.suppress(ConnectionError), session.turn("Go") as turn, turn.stream() as answer:
        answer.write("half")
        raise ConnectionError("they hung up\x1b")
    assert "✗ ConnectionError: they hung up␛\n" in call("sessions", "show", "cli:a").stdout


def test_branches_are_marked(call, session):
    session.rewind("1.1").append({"role": "assistant", "content": "Another answer."})
    output = call("sessions", "show", session.id).stdout
    assert "Branch 2. To show another one, pass --branch: 1" in output
    assert "branch 2 starts here, after branch 1" in output
    assert "Another answer." in output
    assert "It has a title." not in output
    other = call("sessions", "show", session.id, "--branch", "1").stdout
    assert "It has a title." in other
    assert "Another answer." not in other
    assert session.refresh().branch == 2


def test_another_branch_of_a_fork(call, session):
    fork = session.fork(at="1.2", id="cli:fork")
    fork.append(user_message("one way"))
    fork.rewind("1.1").append(user_message("another"))
    branch_ids = [branch.id for branch in fork.branches.list()]
    assert "one way" in call("sessions", "show", "cli:fork", "--branch", str(branch_ids[0])).stdout
    document = json.loads(call("sessions", "show", "cli:fork", "--branch", str(branch_ids[0]), "--json").stdout)
    assert [message["id"] for message in document["messages"]] == ["1.1", "1.2", f"{branch_ids[0]}.3"]
    assert call("sessions", "show", "cli:fork", "--branch", "1", code=3).stderr.startswith("recollect: ")


@pytest.mark.parametrize("branch", [[], ["--branch", "1"]])
def test_the_last_messages(call, session, branch):
    document = json.loads(call("sessions", "show", session.id, "--last", "2", "--json", *branch).stdout)
    assert [message["id"] for message in document["messages"]] == ["1.3", "1.4"]
    assert "What is in README.md?" not in call("sessions", "show", session.id, "--last", "2", *branch).stdout


def test_json_has_the_messages_and_the_branches(call, session):
    document = json.loads(call("sessions", "show", session.id, "--json").stdout)
    assert document.pop("messages") == json.loads(json.dumps([message.to_dict() for message in session.messages()]))
    assert document.pop("branches") == [branch.to_dict() for branch in session.branches.list()]
    assert document == session.refresh().to_dict()


def test_a_session_without_messages(call, store):
    store.session("cli:a", title="Empty")
    result = call("sessions", "show", "cli:a")
    assert result.stdout.startswith("Empty\n")
    assert "no messages" in result.stderr
    assert json.loads(call("sessions", "show", "cli:a", "--json").stdout)["messages"] == []


def test_more_messages_than_a_page(call, store):
    session = store.session("cli:a")
    session.append([user_message(f"m{number}") for number in range(1200)])
    document = json.loads(call("sessions", "show", "cli:a", "--json").stdout)
    assert [message["parts"][0]["text"] for message in document["messages"]] == [f"m{number}" for number in range(1200)]


@pytest.mark.parametrize(
    "control",
    [
        "\x1b[2J",
        "\x07",
        "\x9b31m",
        "\x00",
        "\x7f",
        "\u202e",
        "\x1b]0;owned\x07",
        "\u2028",
        "\x85",
        "\x1b]8;;http://x\x07y",
    ],
    ids=repr,
)
def test_stored_text_cannot_control_the_terminal(call, store, control):
    session = store.session("cli:a", model=f"m{control}".replace("\0", ""), title=f"t{control}".replace("\0", ""))
    session.append(user_message(f"before {control} after"))
    tool_call = {
        "id": "c1",
        "type": "function",
        "function": {"name": f"t{control}", "arguments": json.dumps({"a": control})},
    }
    session.append({"role": "assistant", "content": None, "tool_calls": [tool_call]}, "openai")
    session.append({"role": "tool", "tool_call_id": "c1", "content": f"out {control} put"}, "openai")
    session.append({"role": "assistant", "content": [{"type": "thinking", "thinking": control, "signature": control}]})
    output = call("sessions", "show", "cli:a").stdout
    assert not [char for char in output if char != "\n" and not char.isprintable()]
    assert "before" in output
    assert "put" in output


def test_a_carriage_return_does_not_overwrite_the_line(call, store):
    store.session("cli:a").append(user_message("honest\rforged"))
    assert "honest␍forged" in call("sessions", "show", "cli:a").stdout


def test_a_lone_surrogate_does_not_stop_the_output(call, store):
    store.session("cli:a").append([user_message("half \ud83d"), user_message("whole")])
    assert "whole" in call("sessions", "show", "cli:a").stdout
    document = json.loads(call("sessions", "show", "cli:a", "--json").stdout)
    assert document["messages"][0]["parts"][0]["text"] == "half \ud83d"


def test_reading_does_not_change_the_session(call, session):
    before = session.refresh().to_dict()
    call("sessions", "show", session.id)
    call("sessions", "list")
    assert session.refresh().to_dict() == before


def test_tool_calls_of_a_dead_process_are_not_shown_as_running(call, store):
    session = store.session("cli:a")
    turn = session.turn("Go")
    turn.add({"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "run", "input": {}}]})
    session.tools.start("c")
    assert "→ run {} running" in call("sessions", "show", "cli:a").stdout  # this process holds the turn
    store._engine._file.writer.execute("UPDATE turns SET lease_until = 1")
    assert "→ run {} ✗" in call("sessions", "show", "cli:a").stdout
    assert session.turns.list()[0].status == "interrupted"
