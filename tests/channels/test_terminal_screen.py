"""`recollect chat` in a terminal: the screen and the keys."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import threading

import pytest

pytest.importorskip("prompt_toolkit")
pytest.importorskip("pyte")

from terminal_emulator import ALT_ENTER, DOWN, ENTER, ESCAPE, TAB, UP, Terminal, ctrl, wait_until

import recollect
from recollect.channels.terminal import type_ahead
from recollect_conformance.examples import tool_call_message, tool_result_message

PROMPT = "\n>\n"


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "recollect.db")


@pytest.fixture
def open_terminal(path, tmp_path):
    def start(*arguments, columns=80, rows=40, **variables):
        env = {
            "PATH": os.environ["PATH"], "HOME": str(tmp_path), "RECOLLECT_DB": path, "LC_ALL": "C.UTF-8",
            "TERM": "xterm-256color", **variables,
        }  # fmt: skip
        return Terminal("chat", *arguments, env=env, columns=columns, rows=rows)

    return start


@pytest.fixture
def store(path):
    with recollect.open(path) as store:
        yield store


def add_turns(store, id, *messages, **fields):
    session = store.session(id, **fields)
    for text in messages:
        with session.turn(text) as turn:
            turn.add({"role": "assistant", "content": f"answer to {text}"})
    return session


def user_texts(store):
    return [
        message.text for session in store.list_sessions() for message in session.messages() if message.role == "user"
    ]


def test_a_conversation_from_start_to_end(open_terminal, store):
    with open_terminal() as terminal:
        terminal.wait("New conversation", "/help", "Ctrl-D: quit", PROMPT)
        terminal.submit("What is 6 * 7?")
        terminal.wait('✓ calculate(expression="6 * 7")', "6 * 7 = 42", "tokens in")
        terminal.press(ctrl("d"))
        assert terminal.wait_for_exit() == 0
        (session,) = store.list_sessions()
        assert f"Resume with: recollect chat -r {session.id}" in terminal.screen_text
    assert session.title == "What is 6 * 7?"
    assert [m.role for m in session.messages()] == ["user", "assistant", "tool", "assistant"]


def test_markdown_is_rendered_and_code_is_highlighted(open_terminal):
    with open_terminal() as terminal:
        terminal.wait(PROMPT)
        terminal.submit("Show me some code")
        screen_text = terminal.wait("always the same.", "tokens in")
        assert "```" not in screen_text
        assert "def fibonacci(count: int) -> list[int]:" in screen_text
        assert "\n 1 The first two numbers are fixed.\n" in screen_text
        assert screen_text.count("def fibonacci") == 1
        row = next(y for y, text in enumerate(terminal.screen.display) if "def fibonacci" in text)
        colors = {terminal.screen.buffer[row][x].fg for x in range(1, 30)}
        assert len(colors) > 1


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_the_output_fits_the_width(open_terminal, columns):
    with open_terminal(columns=columns) as terminal:
        terminal.wait(PROMPT)
        terminal.submit("Tell me a story in 2 chapters")
        terminal.wait("Chapter 2.", "tokens in")
        terminal.submit("/help")
        terminal.wait("/quit")


def test_a_long_answer_scrolls_and_is_complete(open_terminal):
    with open_terminal(rows=15) as terminal:
        terminal.wait(PROMPT)
        terminal.submit("Tell me a story in 9 chapters")
        terminal.wait("tokens in")
        transcript = terminal.text_with_history
        for number in range(1, 10):
            assert transcript.count(f"Chapter {number}.") == 1


def test_ctrl_c_stops_the_answer_and_keeps_the_partial_text(open_terminal, store):
    with open_terminal() as terminal:
        terminal.wait(PROMPT)
        terminal.submit("Tell me a story in 500 chapters")
        terminal.wait("Chapter ")
        terminal.press(ctrl("c"))
        terminal.wait("Stopped. The partial answer is stored.", PROMPT)
        terminal.submit("say still here")
        terminal.wait("still here\n", "tokens in")
        terminal.press(ctrl("d"))
        assert terminal.wait_for_exit() == 0
    (session,) = store.list_sessions()
    states = [m.state for m in session.messages()]
    assert states == ["completed", "interrupted", "completed", "completed"]
    assert session.messages()[1].text.startswith("Chapter 1.")


def test_input_typed_during_an_answer_is_sent_after_it(open_terminal, store):
    with open_terminal() as terminal:
        terminal.wait(PROMPT)
        terminal.submit("Tell me a long story")
        terminal.wait("Chapter 1")
        terminal.press("/rename Typed ahead", ENTER, "What is 6 * 7?", ENTER)
        terminal.wait("6 * 7 = 42", "tokens in")
        terminal.press(ctrl("d"))
        assert terminal.wait_for_exit() == 0
    (session,) = store.list_sessions()
    assert session.title == "Typed ahead"
    assert [message.text for message in session.messages() if message.role == "user"] == [
        "Tell me a long story", "What is 6 * 7?",
    ]  # fmt: skip


def test_a_long_text_typed_during_an_answer_is_complete(open_terminal, store):
    with open_terminal() as terminal:
        terminal.wait(PROMPT)
        terminal.submit("Tell me a story in 3 chapters")
        terminal.wait("Chapter 1")
        for _ in range(10):
            terminal.press("say " + "x" * 700 + " ")
        terminal.press(ENTER)
        wait_until(lambda: len(user_texts(store)) == 2)
    assert user_texts(store)[1] == " ".join(["say " + "x" * 700] * 10)


@pytest.mark.parametrize("line_mode", [True, False])
def test_input_typed_during_startup_is_sent(open_terminal, store, line_mode):
    with open_terminal() as terminal:
        if not line_mode:
            wait_until(lambda: not terminal.in_line_mode)
        terminal.press("say first", ENTER, "say second" + ENTER + "say thirty", "\x7f" * 2)
        terminal.wait("first\n", "second\n", "tokens in", "> say thir")
        assert user_texts(store) == ["say first", "say second"]
        terminal.press("d!", ENTER)
        wait_until(lambda: len(user_texts(store)) == 3)
    assert user_texts(store)[2] == "say third!"


def test_ctrl_d_during_startup_quits(open_terminal, store):
    with open_terminal() as terminal:
        terminal.press(ctrl("d"))
        assert terminal.wait_for_exit() == 0
    assert store.list_sessions() == []


def test_input_stays_in_the_terminal_if_no_prompt_follows(monkeypatch):
    person, terminal = pty.openpty()
    with open(terminal, "rb", buffering=0) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        os.write(person, b"ls\r")
        assert select.select([terminal], [], [], 60)[0]
        with type_ahead.line_mode_off():
            assert select.select([terminal], [], [], 60)[0]
        assert os.read(terminal, 100) == b"ls\n"
    os.close(person)


def test_ctrl_d_during_an_answer_quits_after_it(open_terminal, store):
    with open_terminal() as terminal:
        terminal.wait(PROMPT)
        terminal.submit("Tell me a story in 2 chapters")
        terminal.wait("Chapter 1")
        terminal.press(ctrl("d"))
        assert terminal.wait_for_exit() == 0
        assert "Resume with" in terminal.screen_text
    (session,) = store.list_sessions()
    assert [turn.status for turn in session.turns.list()] == ["completed"]


def test_ctrl_c_at_the_prompt_does_not_quit(open_terminal):
    with open_terminal() as terminal:
        terminal.wait(PROMPT)
        terminal.press("half a thought", ctrl("c"))
        terminal.wait("Press Ctrl-D to quit.")
        terminal.submit("say on")
        terminal.wait("on\n", "tokens in")


def test_quitting_without_a_message_stores_nothing(open_terminal, store):
    with open_terminal() as terminal:
        terminal.wait(PROMPT)
        terminal.press(ctrl("d"))
        assert terminal.wait_for_exit() == 0
        assert "Resume" not in terminal.screen_text
    assert store.list_sessions() == []


def test_multiline_input(open_terminal, store):
    with open_terminal() as terminal:
        terminal.wait(PROMPT)
        terminal.press("say one", ALT_ENTER, "two", ctrl("j"), "three\\", ENTER, "four", ENTER)
        terminal.wait("tokens in")
    assert store.list_sessions()[0].messages()[0].text == "say one\ntwo\nthree\nfour"


def test_arrow_keys_recall_earlier_messages(open_terminal, store):
    add_turns(store, "cli:default", "say earlier")
    with open_terminal("--session") as terminal:
        terminal.wait("answer to say earlier", PROMPT)
        terminal.submit("say later")
        terminal.wait("later\n", "tokens in")
        terminal.press(UP)
        terminal.wait("> say later\n\n")
        terminal.press(UP)
        terminal.wait("> say earlier\n\n")
        terminal.press(DOWN, ENTER)
        wait_until(lambda: [m.text for m in store.session("cli:default").messages()][4:] == ["say later", "later"])


def test_commands_and_sessions_are_completed(open_terminal, store):
    add_turns(store, "cli:coats", "Where is my coat?", title="Coats and hats")
    with open_terminal() as terminal:
        terminal.wait(PROMPT)
        terminal.press("/res")
        terminal.wait("/resume [SESSION]")
        terminal.press(TAB, " coa")
        terminal.wait("Coats and hats")
        terminal.press(TAB, ENTER)
        terminal.press(ENTER)
        terminal.wait("Back in Coats and hats", "> Where is my coat?", "answer to Where is my coat?")


def test_a_resumed_session_shows_its_last_messages(open_terminal, store):
    add_turns(store, "cli:default", *[f"question {n}" for n in range(9)], title="Nine")
    with open_terminal("-c") as terminal:
        screen_text = terminal.wait("Nine", "answer to question 8", PROMPT)
        assert "question 0" not in screen_text
        assert "12 earlier messages" in screen_text


def test_the_count_of_earlier_messages_omits_tool_steps(open_terminal, store):
    add_turns(store, "cli:default", "first", title="Tools")
    store.session("cli:default").append([tool_call_message("one"), tool_result_message("one")])
    add_turns(store, "cli:default", *[f"question {n}" for n in range(4)])
    with open_terminal("-c") as terminal:
        screen_text = terminal.wait("Tools", "answer to question 3", PROMPT)
        assert "4 earlier messages" in screen_text  # 12 stored messages, minus 6 on the screen, minus 2 tool steps


def test_the_picker_counts_messages_without_tool_steps(open_terminal, store):
    add_turns(store, "cli:tools", *[f"question {n}" for n in range(5)], title="Many tools")
    store.session("cli:tools").append([tool_call_message("one"), tool_result_message("one")])
    with open_terminal() as terminal:
        terminal.wait(PROMPT)
        terminal.submit("/resume")
        screen_text = terminal.wait("Search:", "Many tools")
        assert re.search(r"Many tools .* 10\b", screen_text), screen_text


def test_clear_shows_how_to_resume_the_old_messages(open_terminal, store):
    add_turns(store, "cli:default", "say old")
    with open_terminal("--session") as terminal:
        terminal.wait(PROMPT)
        terminal.submit("/clear")
        screen_text = terminal.wait("is cleared", "/resume", "New conversation")
        old_id = re.search(r"/resume\s+([0-9a-f-]{36})", screen_text.replace("\n", " "))[1]
        terminal.submit(f"/resume {old_id}")
        terminal.wait("answer to say old")
    assert store.session("cli:default").message_count == 0


def test_rewind_puts_the_message_into_the_input(open_terminal, store):
    add_turns(store, "cli:default", "say first", "say second")
    with open_terminal("--session") as terminal:
        terminal.wait(PROMPT)
        terminal.submit("/rewind")
        terminal.wait("> say second\n\n")
        terminal.press(" thing", ENTER)
        terminal.wait("second thing\n", "tokens in")
    assert [m.text for m in store.session("cli:default").messages()][2:] == ["say second thing", "second thing"]


def test_quit_and_status(open_terminal):
    with open_terminal("-n", "Named") as terminal:
        terminal.wait("Named", PROMPT)
        terminal.submit("/status")
        terminal.wait("conversation", "Named", "demo")
        terminal.submit("/quit")
        assert terminal.wait_for_exit() == 0
        assert "Resume with" in terminal.screen_text


def test_ephemeral_reports_that_nothing_was_stored(open_terminal, path):
    with open_terminal("--ephemeral") as terminal:
        terminal.wait(PROMPT)
        terminal.submit("say gone")
        terminal.wait("gone\n", "tokens in")
        terminal.press(ctrl("d"))
        assert terminal.wait_for_exit() == 0
        assert "This conversation was not stored." in terminal.screen_text
    assert not os.path.exists(path)


def test_no_color(open_terminal):
    with open_terminal(NO_COLOR="1") as terminal:
        terminal.wait(PROMPT)
        terminal.submit("Show me some code")
        terminal.wait("always the same.", "tokens in")
        answer = terminal.raw.split(b"Show me some code")[-1]
        assert not re.search(rb"\x1b\[[0-9;]*(?:3[0-7]|9[0-7])m", answer.split(b"tokens in")[0])


def test_a_dumb_terminal(open_terminal):
    with open_terminal(TERM="dumb") as terminal:
        terminal.wait("\n>")
        terminal.submit("say hello")
        terminal.wait("hello\n", "tokens in")


def test_stored_text_does_not_control_the_terminal(open_terminal, store):
    bad = "\x1b]0;owned\x07\x1b[2J\x1b[31m\u202e"
    add_turns(store, "cli:default", f"before{bad}after", title=f"title{bad}")
    with open_terminal("--session") as terminal:
        terminal.wait("before", "after", PROMPT)
        terminal.submit("/resume")
        terminal.wait("Search:", "title")
        assert b"owned\x07" not in terminal.raw
        assert b"\x1b[31m\xe2\x80\xae" not in terminal.raw
        assert "\u202e".encode() not in terminal.raw


class TestPicker:
    @pytest.fixture(autouse=True)
    def sessions(self, store):
        add_turns(store, "cli:coats", "Where is my red coat?", title="Coats")
        add_turns(store, "cli:hats", "Where is my hat?", title="Hats")
        add_turns(store, "cli:gloves", "Where are my gloves?", title="Gloves")

    def selected_title(self, terminal):
        for y, text in enumerate(terminal.screen.display):
            if terminal.screen.buffer[y][4].reverse:
                return text.split()[0]
        return ""

    @pytest.mark.parametrize("columns", [80, 120])
    def test_the_list_the_preview_and_the_keys(self, open_terminal, columns):
        with open_terminal("-r", columns=columns) as terminal:
            screen_text = terminal.wait("Gloves", "Hats", "Coats", "Where are my gloves?", "answer to")
            for key in ("Enter", "Ctrl-R", "Ctrl-F", "Ctrl-X", "Ctrl-Z", "Esc"):
                assert key in screen_text
            assert self.selected_title(terminal) == "Gloves"
            terminal.press(DOWN)
            terminal.wait("Where is my hat?")
            assert self.selected_title(terminal) == "Hats"
            terminal.press(ENTER)
            terminal.wait("answer to Where is my hat?", PROMPT)

    @pytest.mark.parametrize("columns", [80, 120])
    def test_the_session_after_a_delete_is_called_new_and_its_id_is_shown_once(self, open_terminal, store, columns):
        with open_terminal("-r", columns=columns) as terminal:
            terminal.wait("Gloves")
            terminal.press(ENTER)
            terminal.wait("answer to Where are my gloves?", PROMPT)
            terminal.submit("/delete")
            terminal.wait("to the trash", PROMPT)
            (new_id,) = [session.id for session in store.list_sessions() if not session.message_count]
            terminal.submit("/resume")
            screen_text = terminal.wait("No messages yet.", "Search:")
            assert "New" in self.selected_title(terminal)
            assert screen_text.count("New conversation") == 2
            assert screen_text.count(new_id) == 1

    def test_an_untitled_session_shows_its_id_in_the_list_and_the_preview(self, open_terminal, store):
        add_turns(store, "cli:untitled-one", "Where is it?")
        with open_terminal("-r", columns=120) as terminal:
            screen_text = terminal.wait("Where is it?", "Gloves")
            assert screen_text.count("cli:untitled-one") == 2  # in the list, and as the heading of the preview

    def test_an_id_with_control_characters_is_escaped(self, open_terminal, store):
        add_turns(store, "odd\n\x1b[2J\u202eid", "Where is the odd one?")
        with open_terminal("-r", columns=120) as terminal:
            screen_text = terminal.wait("Where is the odd one?", "Gloves")
            assert screen_text.count(r"odd\n\x1b[2J\u202eid") == 2  # in the list, and as the heading of the preview
            terminal.press(ENTER)
            terminal.wait(r"\n\x1b[2J\u202eid", "answer to Where is the odd one?", PROMPT)

    def test_typing_searches_titles(self, open_terminal):
        with open_terminal("-r") as terminal:
            terminal.wait("Gloves")
            terminal.press("coa")
            terminal.wait("Where is my red coat?", absent=["Gloves", "Hats"])
            terminal.press(ENTER)
            terminal.wait("answer to Where is my red coat?", PROMPT)

    def test_typing_searches_the_text(self, open_terminal):
        with open_terminal("-r") as terminal:
            terminal.wait("Gloves")
            terminal.press("red")
            terminal.wait("Coats", absent=["Gloves", "Hats"])

    def test_no_matches(self, open_terminal):
        with open_terminal("-r") as terminal:
            terminal.wait("Gloves")
            terminal.press("zzz")
            terminal.wait("No matching conversations.")
            terminal.press(ENTER, ctrl("r"), ctrl("x"), ctrl("f"))
            terminal.wait("No matching conversations.")
            terminal.press(ctrl("c"))
            assert terminal.wait_for_exit() == 0

    def test_rename(self, open_terminal, store):
        with open_terminal("-r") as terminal:
            terminal.wait("Gloves")
            terminal.press(ctrl("r"))
            terminal.wait("New title: Gloves")
            terminal.press(" and scarves", ENTER)
            terminal.wait("Renamed to Gloves and scarves.")
        assert store.get_session("cli:gloves").title == "Gloves and scarves"

    def test_rename_can_be_cancelled(self, open_terminal, store):
        with open_terminal("-r") as terminal:
            terminal.wait("Gloves")
            terminal.press(ctrl("r"))
            terminal.wait("New title:")
            terminal.press("x", ctrl("c"))
            terminal.wait("Search:")
        assert store.get_session("cli:gloves").title == "Gloves"

    def test_delete_and_undo(self, open_terminal, store):
        with open_terminal("-r") as terminal:
            terminal.wait("Gloves")
            terminal.press(ctrl("x"))
            terminal.wait("Moved Gloves to the trash. Ctrl-Z restores it.")
            assert store.get_session("cli:gloves") is None
            terminal.press(ctrl("z"))
            terminal.wait("Restored Gloves.")
        assert store.get_session("cli:gloves") is not None

    @pytest.mark.parametrize("key", ["f", "x"])
    def test_a_session_erased_by_another_window(self, open_terminal, store, key):
        with open_terminal("-r") as terminal:
            terminal.wait("Gloves", "Where are my gloves?")
            store.erase_session("cli:gloves")
            terminal.press(ctrl(key))
            terminal.wait("No session 'cli:gloves'")
            terminal.press(DOWN, ENTER)
            terminal.wait("answer to Where is my hat?", PROMPT)

    def test_renaming_an_erased_session(self, open_terminal, store):
        with open_terminal("-r") as terminal:
            terminal.wait("Gloves", "Where are my gloves?")
            terminal.press(ctrl("r"))
            terminal.wait("New title: Gloves")
            store.erase_session("cli:gloves")
            terminal.press("x", ENTER)
            terminal.wait("No session 'cli:gloves'")

    def test_fork(self, open_terminal, store):
        with open_terminal("-r") as terminal:
            terminal.wait("Gloves")
            terminal.press(ctrl("f"))
            terminal.wait("Gloves (fork)", PROMPT)
        (fork,) = [s for s in store.list_sessions() if s.relation == "fork"]
        assert fork.parent == "cli:gloves"

    def test_escape_quits(self, open_terminal, store):
        with open_terminal("-r") as terminal:
            terminal.wait("Gloves")
            terminal.press(ESCAPE)
            assert terminal.wait_for_exit() == 0
        assert len(store.list_sessions()) == 3


class TestTwoWindows:
    """Another process has an open turn. In these tests it is a thread with its own store."""

    @pytest.fixture
    def other(self, path):
        release, turn_open = threading.Event(), threading.Event()

        async def hold():
            async with recollect.open_async(path) as store:
                session = await store.session("cli:default")
                async with session.turn("from elsewhere") as turn:
                    turn_open.set()
                    while not release.is_set():
                        await asyncio.sleep(0.02)
                    try:
                        await turn.add({"role": "assistant", "content": "answered elsewhere"})
                    except recollect.TurnClosed:
                        await asyncio.sleep(0)

        def run():
            try:
                asyncio.run(hold())
            except recollect.TurnClosed:
                return

        thread = threading.Thread(target=run)
        thread.start()
        assert turn_open.wait(60)
        yield release
        release.set()
        thread.join(10)

    def test_the_second_window_watches(self, open_terminal, other, store):
        with open_terminal("--session") as terminal:
            terminal.wait("from elsewhere", "open in a program (process", "> Attach:")
            terminal.press(ENTER)
            terminal.wait("Attached.", PROMPT)
            terminal.submit("say mine")
            terminal.wait("Another window is waiting for an answer", "> Watch it and wait")
            terminal.press(ENTER)
            terminal.wait("Watching.")
            other.set()
            terminal.wait("answered elsewhere", "The other answer is complete.", "> say mine")
            terminal.press(ENTER)
            terminal.wait("mine\n", "tokens in")
        texts = [m.text for m in store.session("cli:default").messages()]
        assert texts == ["from elsewhere", "answered elsewhere", "say mine", "mine"]

    def test_the_second_window_forks(self, open_terminal, other, store):
        with open_terminal("--session") as terminal:
            terminal.wait("> Attach:")
            terminal.press(ENTER)
            terminal.wait("Attached.", PROMPT)
            terminal.submit("say mine")
            terminal.wait("> Watch it and wait")
            terminal.press(ctrl("f"))
            terminal.wait("You are now in a fork", "mine\n", "tokens in")
        assert [m.text for m in store.session("cli:default").messages()] == ["from elsewhere"]

    def test_the_second_window_takes_over(self, open_terminal, other, store):
        with open_terminal("--session") as terminal:
            terminal.wait("> Attach:")
            terminal.press(ENTER)
            terminal.wait("Attached.", PROMPT)
            terminal.submit("say mine")
            terminal.wait("> Watch it and wait")
            terminal.press(ctrl("t"))
            terminal.wait("mine\n", "tokens in")
        turns = store.session("cli:default").turns.list()
        assert [turn.status for turn in turns] == ["interrupted", "completed"]


def test_an_earlier_tool_result_is_shown_with_its_tool(open_terminal, store):
    session = store.session("cli:coat")
    session.append({"role": "user", "content": "Do I need a coat?"})
    call = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}}
    session.append({"role": "assistant", "content": [call]})
    session.tools.record_result("c1", "4 degrees, rain")
    with open_terminal("--session", "coat") as terminal:
        terminal.wait("✓ weather: 4 degrees, rain", PROMPT)
        terminal.press(ctrl("d"))
        assert terminal.wait_for_exit() == 0
