"""`sessions show`: a conversation, by any of its names, to read and as JSON."""

from __future__ import annotations

import contextlib
import json

import pytest
from cli_words import said

import recollect


def test_by_id_by_title_and_by_prefix(call, talk):
    shown = call("sessions", "show", talk.id).stdout
    assert call("sessions", "show", "About the README").stdout == shown
    assert call("sessions", "show", talk.id[:9]).stdout == shown


def test_what_it_shows_and_in_which_order(call, talk):
    shown = call("sessions", "show", talk.id).stdout
    told = ["About the README", talk.id, "some-model", "2 messages", "user  1.1", "What is in README.md?", "assistant  1.2",
            "┊ I must look.", "Let me see.", '→ read {"path": "README.md"} ✓', "tool  1.3", "← read", "    # Title", "    text",
            "assistant  1.4", "It has a title."]  # fmt: skip
    places = [shown.index(text) for text in told]
    assert places == sorted(places)


def test_a_failed_tool_an_attachment_data_and_a_cut_off_answer(call, store):
    session = store.session("cli:a")
    session.append({"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "run", "input": {}}]})
    session.record_tool_result("c", status="error", error_code="E7", error_message="it broke", latency_ms=1500)
    image = recollect.AttachmentPart(mime_type="image/png", name="cat\x1b.png", size=12_345)
    session.append(recollect.Draft(role="user", parts=(image, recollect.DataPart(native={"type": "poll"}))))
    with contextlib.suppress(RuntimeError), session.turn("Go") as turn, turn.stream() as answer:
        answer.write("half")
        raise RuntimeError
    shown = call("sessions", "show", "cli:a").stdout
    for text in ("✗ 1.5 s", "← run ✗ E7", "it broke", "[cat␛.png, image/png, 12 kB]", "[poll]", "half", "error"):
        assert text in shown


def test_what_went_wrong_is_told_in_words(call, store):
    session = store.session("cli:a")
    with contextlib.suppress(ConnectionError), session.turn("Go") as turn, turn.stream() as answer:
        answer.write("half")
        raise ConnectionError("they hung up\x1b")
    assert "✗ ConnectionError: they hung up␛\n" in call("sessions", "show", "cli:a").stdout


def test_branches_are_marked(call, talk):
    talk.rewind("1.1").append({"role": "assistant", "content": "Another answer."})
    shown = call("sessions", "show", talk.id).stdout
    assert "on branch 2; --branch shows another: 1" in shown
    assert "branch 2 leaves branch 1 here" in shown
    assert "Another answer." in shown
    assert "It has a title." not in shown
    other = call("sessions", "show", talk.id, "--branch", "1").stdout
    assert "It has a title." in other
    assert "Another answer." not in other
    assert talk.refresh().branch == 2


def test_another_branch_of_a_fork(call, talk):
    fork = talk.fork(at="1.2", id="cli:fork")
    fork.append(said("one way"))
    fork.rewind("1.1").append(said("another"))
    last = [branch.id for branch in fork.branches()]
    assert "one way" in call("sessions", "show", "cli:fork", "--branch", str(last[0])).stdout
    shown = json.loads(call("sessions", "show", "cli:fork", "--branch", str(last[0]), "--json").stdout)
    assert [message["id"] for message in shown["messages"]] == ["1.1", "1.2", f"{last[0]}.3"]
    assert call("sessions", "show", "cli:fork", "--branch", "1", code=3).stderr.startswith("recollect: ")


@pytest.mark.parametrize("branch", [[], ["--branch", "1"]])
def test_the_last_messages(call, talk, branch):
    shown = json.loads(call("sessions", "show", talk.id, "--last", "2", "--json", *branch).stdout)
    assert [message["id"] for message in shown["messages"]] == ["1.3", "1.4"]
    assert "What is in README.md?" not in call("sessions", "show", talk.id, "--last", "2", *branch).stdout


def test_json_has_the_messages_and_the_branches(call, talk):
    shown = json.loads(call("sessions", "show", talk.id, "--json").stdout)
    assert shown.pop("messages") == json.loads(json.dumps([message.to_dict() for message in talk.messages()]))
    assert shown.pop("branches") == [branch.to_dict() for branch in talk.branches()]
    assert shown == talk.refresh().to_dict()


def test_one_without_messages(call, store):
    store.session("cli:a", title="Empty")
    shown = call("sessions", "show", "cli:a")
    assert shown.stdout.startswith("Empty\n")
    assert "no messages" in shown.stderr
    assert json.loads(call("sessions", "show", "cli:a", "--json").stdout)["messages"] == []


def test_more_messages_than_a_page(call, store):
    session = store.session("cli:a")
    session.append([said(f"m{number}") for number in range(1200)])
    shown = json.loads(call("sessions", "show", "cli:a", "--json").stdout)
    assert [message["parts"][0]["text"] for message in shown["messages"]] == [f"m{number}" for number in range(1200)]


@pytest.mark.parametrize(
    "bad",
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
def test_what_was_stored_can_not_steer_the_terminal(call, store, bad):
    session = store.session("cli:a", model=f"m{bad}".replace("\0", ""), title=f"t{bad}".replace("\0", ""))
    session.append(said(f"before {bad} after"))
    call_ = {"id": "c1", "type": "function", "function": {"name": f"t{bad}", "arguments": json.dumps({"a": bad})}}
    session.append({"role": "assistant", "content": None, "tool_calls": [call_]}, "openai")
    session.append({"role": "tool", "tool_call_id": "c1", "content": f"out {bad} put"}, "openai")
    session.append({"role": "assistant", "content": [{"type": "thinking", "thinking": bad, "signature": bad}]})
    shown = call("sessions", "show", "cli:a").stdout
    assert not [char for char in shown if char != "\n" and not char.isprintable()]
    assert "before" in shown
    assert "put" in shown


def test_a_carriage_return_does_not_overwrite_the_line(call, store):
    store.session("cli:a").append(said("honest\rforged"))
    assert "honest␍forged" in call("sessions", "show", "cli:a").stdout


def test_half_of_a_surrogate_pair_does_not_end_it(call, store):
    store.session("cli:a").append([said("half \ud83d"), said("whole")])
    assert "whole" in call("sessions", "show", "cli:a").stdout
    shown = json.loads(call("sessions", "show", "cli:a", "--json").stdout)
    assert shown["messages"][0]["parts"][0]["text"] == "half \ud83d"


def test_reading_changes_nothing_that_others_see(call, talk):
    before = talk.refresh().to_dict()
    call("sessions", "show", talk.id)
    call("sessions", "list")
    assert talk.refresh().to_dict() == before


def test_calls_of_a_turn_whose_process_is_gone_are_not_said_to_run(call, store):
    session = store.session("cli:a")
    turn = session.turn("Go")
    turn.add({"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "run", "input": {}}]})
    session.start_tool_call("c")
    assert "→ run {} running" in call("sessions", "show", "cli:a").stdout  # its process is this one
    store._engine._file.writer.execute("UPDATE turns SET lease_until = 1")
    assert "→ run {} ✗" in call("sessions", "show", "cli:a").stdout
    assert session.turns()[0].status == "interrupted"
