"""`recollect chat` at a terminal, as a person sees it."""

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

from at_terminal import ALT_ENTER, DOWN, ENTER, ESCAPE, TAB, UP, Terminal, ctrl, until

import recollect
from recollect.channels.terminal import ahead
from recollect.testing.talk import answers, asks

PROMPT = "\n>\n"


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "recollect.db")


@pytest.fixture
def at(path, tmp_path):
    def start(*words, columns=80, rows=40, **more):
        env = {
            "PATH": os.environ["PATH"], "HOME": str(tmp_path), "RECOLLECT_DB": path, "LC_ALL": "C.UTF-8",
            "TERM": "xterm-256color", **more,
        }  # fmt: skip
        return Terminal("chat", *words, env=env, columns=columns, rows=rows)

    return start


@pytest.fixture
def store(path):
    with recollect.open(path) as store:
        yield store


def talk(store, id, *said, **fields):
    session = store.session(id, **fields)
    for text in said:
        with session.turn(text) as turn:
            turn.add({"role": "assistant", "content": f"answer to {text}"})
    return session


def user_texts(store):
    return [
        message.text for session in store.list_sessions() for message in session.messages() if message.role == "user"
    ]


def test_a_talk_from_beginning_to_end(at, store):
    with at() as terminal:
        terminal.wait("New conversation", "/help", "Ctrl-D leaves", PROMPT)
        terminal.say("What is 6 * 7?")
        terminal.wait('✓ calculate(expression="6 * 7")', "6 * 7 = 42", "tokens in")
        terminal.press(ctrl("d"))
        assert terminal.end() == 0
        (session,) = store.list_sessions()
        assert f"Resume it with: recollect chat -r {session.id}" in terminal.shown
    assert session.title == "What is 6 * 7?"
    assert [m.role for m in session.messages()] == ["user", "assistant", "tool", "assistant"]


def test_markdown_is_drawn_and_code_is_highlighted(at):
    with at() as terminal:
        terminal.wait(PROMPT)
        terminal.say("Show me some code")
        shown = terminal.wait("always the same.", "tokens in")
        assert "```" not in shown
        assert "def fibonacci(count: int) -> list[int]:" in shown
        assert "\n 1 The first two are given.\n" in shown
        assert shown.count("def fibonacci") == 1
        row = next(y for y, text in enumerate(terminal.screen.display) if "def fibonacci" in text)
        colours = {terminal.screen.buffer[row][x].fg for x in range(1, 30)}
        assert len(colours) > 1


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_it_fits_the_width(at, columns):
    with at(columns=columns) as terminal:
        terminal.wait(PROMPT)
        terminal.say("Tell me a story in 2 chapters")
        terminal.wait("Chapter 2.", "tokens in")
        terminal.say("/help")
        terminal.wait("/quit")


def test_a_long_answer_scrolls_and_is_whole(at):
    with at(rows=15) as terminal:
        terminal.wait(PROMPT)
        terminal.say("Tell me a story in 9 chapters")
        terminal.wait("tokens in")
        whole = terminal.everything
        for number in range(1, 10):
            assert whole.count(f"Chapter {number}.") == 1


def test_ctrl_c_stops_the_answer_and_keeps_what_came(at, store):
    with at() as terminal:
        terminal.wait(PROMPT)
        terminal.say("Tell me a story in 500 chapters")
        terminal.wait("Chapter ")
        terminal.press(ctrl("c"))
        terminal.wait("Stopped. What came until here is kept.", PROMPT)
        terminal.say("say still here")
        terminal.wait("still here\n", "tokens in")
        terminal.press(ctrl("d"))
        assert terminal.end() == 0
    (session,) = store.list_sessions()
    states = [m.state for m in session.messages()]
    assert states == ["completed", "interrupted", "completed", "completed"]
    assert session.messages()[1].text.startswith("Chapter 1.")


def test_what_is_typed_during_an_answer_is_sent_after_it(at, store):
    with at() as terminal:
        terminal.wait(PROMPT)
        terminal.say("Tell me a long story")
        terminal.wait("Chapter 1")
        terminal.press("/rename Typed ahead", ENTER, "What is 6 * 7?", ENTER)
        terminal.wait("6 * 7 = 42", "tokens in")
        terminal.press(ctrl("d"))
        assert terminal.end() == 0
    (session,) = store.list_sessions()
    assert session.title == "Typed ahead"
    assert [message.text for message in session.messages() if message.role == "user"] == [
        "Tell me a long story", "What is 6 * 7?",
    ]  # fmt: skip


def test_a_long_text_typed_during_an_answer_is_whole(at, store):
    with at() as terminal:
        terminal.wait(PROMPT)
        terminal.say("Tell me a story in 3 chapters")
        terminal.wait("Chapter 1")
        for _ in range(10):
            terminal.press("say " + "x" * 700 + " ")
        terminal.press(ENTER)
        until(lambda: len(user_texts(store)) == 2)
    assert user_texts(store)[1] == " ".join(["say " + "x" * 700] * 10)


@pytest.mark.parametrize("line_mode", [True, False])
def test_what_is_typed_while_it_starts_is_sent(at, store, line_mode):
    with at() as terminal:
        if not line_mode:
            until(lambda: not terminal.in_line_mode)
        terminal.press("say first", ENTER, "say second" + ENTER + "say thirty", "\x7f" * 2)
        terminal.wait("first\n", "second\n", "tokens in", "> say thir")
        assert user_texts(store) == ["say first", "say second"]
        terminal.press("d!", ENTER)
        until(lambda: len(user_texts(store)) == 3)
    assert user_texts(store)[2] == "say third!"


def test_ctrl_d_while_it_starts_leaves(at, store):
    with at() as terminal:
        terminal.press(ctrl("d"))
        assert terminal.end() == 0
    assert store.list_sessions() == []


def test_what_is_typed_stays_with_the_terminal_if_no_prompt_comes(monkeypatch):
    person, terminal = pty.openpty()
    with open(terminal, "rb", buffering=0) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        os.write(person, b"ls\r")
        assert select.select([terminal], [], [], 60)[0]
        with ahead.kept():
            assert select.select([terminal], [], [], 60)[0]
        assert os.read(terminal, 100) == b"ls\n"
    os.close(person)


def test_ctrl_d_during_an_answer_leaves_after_it(at, store):
    with at() as terminal:
        terminal.wait(PROMPT)
        terminal.say("Tell me a story in 2 chapters")
        terminal.wait("Chapter 1")
        terminal.press(ctrl("d"))
        assert terminal.end() == 0
        assert "Resume it with" in terminal.shown
    (session,) = store.list_sessions()
    assert [turn.status for turn in session.turns()] == ["completed"]


def test_ctrl_c_at_the_prompt_does_not_leave(at):
    with at() as terminal:
        terminal.wait(PROMPT)
        terminal.press("half a thought", ctrl("c"))
        terminal.wait("Ctrl-D leaves.")
        terminal.say("say on")
        terminal.wait("on\n", "tokens in")


def test_leaving_without_a_word_leaves_nothing(at, store):
    with at() as terminal:
        terminal.wait(PROMPT)
        terminal.press(ctrl("d"))
        assert terminal.end() == 0
        assert "Resume" not in terminal.shown
    assert store.list_sessions() == []


def test_several_lines(at, store):
    with at() as terminal:
        terminal.wait(PROMPT)
        terminal.press("say one", ALT_ENTER, "two", ctrl("j"), "three\\", ENTER, "four", ENTER)
        terminal.wait("tokens in")
    assert store.list_sessions()[0].messages()[0].text == "say one\ntwo\nthree\nfour"


def test_the_arrows_bring_back_what_was_said_also_before(at, store):
    talk(store, "cli:default", "say earlier")
    with at("--session") as terminal:
        terminal.wait("answer to say earlier", PROMPT)
        terminal.say("say later")
        terminal.wait("later\n", "tokens in")
        terminal.press(UP)
        terminal.wait("> say later\n\n")
        terminal.press(UP)
        terminal.wait("> say earlier\n\n")
        terminal.press(DOWN, ENTER)
        until(lambda: [m.text for m in store.session("cli:default").messages()][4:] == ["say later", "later"])


def test_commands_and_sessions_are_completed(at, store):
    talk(store, "cli:coats", "Where is my coat?", title="Coats and hats")
    with at() as terminal:
        terminal.wait(PROMPT)
        terminal.press("/res")
        terminal.wait("/resume [SESSION]")
        terminal.press(TAB, " coa")
        terminal.wait("Coats and hats")
        terminal.press(TAB, ENTER)
        terminal.press(ENTER)
        terminal.wait("Back in Coats and hats", "> Where is my coat?", "answer to Where is my coat?")


def test_a_session_is_resumed_with_its_end(at, store):
    talk(store, "cli:default", *[f"question {n}" for n in range(9)], title="Nine")
    with at("-c") as terminal:
        shown = terminal.wait("Nine", "answer to question 8", PROMPT)
        assert "question 0" not in shown
        assert "12 earlier messages" in shown


def test_earlier_messages_leave_out_tool_steps(at, store):
    talk(store, "cli:default", "first", title="Tools")
    store.session("cli:default").append([asks("one"), answers("one")])
    talk(store, "cli:default", *[f"question {n}" for n in range(4)])
    with at("-c") as terminal:
        shown = terminal.wait("Tools", "answer to question 3", PROMPT)
        assert "4 earlier messages" in shown  # of 12 that are stored 6 are shown, and 2 are tool steps


def test_the_list_counts_messages_without_tool_steps(at, store):
    talk(store, "cli:tools", *[f"question {n}" for n in range(5)], title="Many tools")
    store.session("cli:tools").append([asks("one"), answers("one")])
    with at() as terminal:
        terminal.wait(PROMPT)
        terminal.say("/resume")
        shown = terminal.wait("Search:", "Many tools")
        assert re.search(r"Many tools .* 10\b", shown), shown


def test_clear_says_how_to_get_the_old_talk_back(at, store):
    talk(store, "cli:default", "say old")
    with at("--session") as terminal:
        terminal.wait(PROMPT)
        terminal.say("/clear")
        shown = terminal.wait("starts afresh", "/resume", "New conversation")
        past = re.search(r"/resume\s+([0-9a-f-]{36})", shown.replace("\n", " "))[1]
        terminal.say(f"/resume {past}")
        terminal.wait("answer to say old")
    assert store.session("cli:default").message_count == 0


def test_rewind_puts_what_was_said_into_the_input(at, store):
    talk(store, "cli:default", "say first", "say second")
    with at("--session") as terminal:
        terminal.wait(PROMPT)
        terminal.say("/rewind")
        terminal.wait("> say second\n\n")
        terminal.press(" thing", ENTER)
        terminal.wait("second thing\n", "tokens in")
    assert [m.text for m in store.session("cli:default").messages()][2:] == ["say second thing", "second thing"]


def test_quit_and_status(at):
    with at("-n", "Named") as terminal:
        terminal.wait("Named", PROMPT)
        terminal.say("/status")
        terminal.wait("session", "Named", "demo")
        terminal.say("/quit")
        assert terminal.end() == 0
        assert "Resume it with" in terminal.shown


def test_ephemeral_says_that_nothing_was_kept(at, path):
    with at("--ephemeral") as terminal:
        terminal.wait(PROMPT)
        terminal.say("say gone")
        terminal.wait("gone\n", "tokens in")
        terminal.press(ctrl("d"))
        assert terminal.end() == 0
        assert "Nothing of this conversation was kept." in terminal.shown
    assert not os.path.exists(path)


def test_without_colour(at):
    with at(NO_COLOR="1") as terminal:
        terminal.wait(PROMPT)
        terminal.say("Show me some code")
        terminal.wait("always the same.", "tokens in")
        answer = terminal.raw.split(b"Show me some code")[-1]
        assert not re.search(rb"\x1b\[[0-9;]*(?:3[0-7]|9[0-7])m", answer.split(b"tokens in")[0])


def test_a_dumb_terminal(at):
    with at(TERM="dumb") as terminal:
        terminal.wait("\n>")
        terminal.say("say hello")
        terminal.wait("hello\n", "tokens in")


def test_what_is_stored_does_not_steer_the_terminal(at, store):
    bad = "\x1b]0;owned\x07\x1b[2J\x1b[31m\u202e"
    talk(store, "cli:default", f"before{bad}after", title=f"title{bad}")
    with at("--session") as terminal:
        terminal.wait("before", "after", PROMPT)
        terminal.say("/resume")
        terminal.wait("Search:", "title")
        assert b"owned\x07" not in terminal.raw
        assert b"\x1b[31m\xe2\x80\xae" not in terminal.raw
        assert "\u202e".encode() not in terminal.raw


class TestPicker:
    @pytest.fixture(autouse=True)
    def sessions(self, store):
        talk(store, "cli:coats", "Where is my red coat?", title="Coats")
        talk(store, "cli:hats", "Where is my hat?", title="Hats")
        talk(store, "cli:gloves", "Where are my gloves?", title="Gloves")

    def chosen(self, terminal):
        for y, text in enumerate(terminal.screen.display):
            if terminal.screen.buffer[y][4].reverse:
                return text.split()[0]
        return None

    @pytest.mark.parametrize("columns", [80, 120])
    def test_the_list_the_preview_and_the_keys(self, at, columns):
        with at("-r", columns=columns) as terminal:
            shown = terminal.wait("Gloves", "Hats", "Coats", "Where are my gloves?", "answer to")
            for key in ("Enter", "Ctrl-R", "Ctrl-F", "Ctrl-X", "Ctrl-Z", "Esc"):
                assert key in shown
            assert self.chosen(terminal) == "Gloves"
            terminal.press(DOWN)
            terminal.wait("Where is my hat?")
            assert self.chosen(terminal) == "Hats"
            terminal.press(ENTER)
            terminal.wait("answer to Where is my hat?", PROMPT)

    @pytest.mark.parametrize("columns", [80, 120])
    def test_the_new_one_after_a_delete_is_called_new_and_its_id_is_shown_once(self, at, store, columns):
        with at("-r", columns=columns) as terminal:
            terminal.wait("Gloves")
            terminal.press(ENTER)
            terminal.wait("answer to Where are my gloves?", PROMPT)
            terminal.say("/delete")
            terminal.wait("is in the trash", PROMPT)
            (fresh,) = [session.id for session in store.list_sessions() if not session.message_count]
            terminal.say("/resume")
            shown = terminal.wait("Nothing was said yet.", "Search:")
            assert "New" in self.chosen(terminal)
            assert shown.count("New conversation") == 2
            assert shown.count(fresh) == 1

    def test_a_session_without_a_title_shows_its_id_once_below_the_list(self, at, store):
        talk(store, "cli:untitled-one", "Where is it?")
        with at("-r", columns=120) as terminal:
            shown = terminal.wait("Where is it?", "Gloves")
            assert shown.count("cli:untitled-one") == 2  # in the list, and as the head of what it is about

    def test_typing_searches_titles(self, at):
        with at("-r") as terminal:
            terminal.wait("Gloves")
            terminal.press("coa")
            terminal.wait("Where is my red coat?", gone=["Gloves", "Hats"])
            terminal.press(ENTER)
            terminal.wait("answer to Where is my red coat?", PROMPT)

    def test_typing_searches_the_text(self, at):
        with at("-r") as terminal:
            terminal.wait("Gloves")
            terminal.press("red")
            terminal.wait("Coats", gone=["Gloves", "Hats"])

    def test_nothing_fits(self, at):
        with at("-r") as terminal:
            terminal.wait("Gloves")
            terminal.press("zzz")
            terminal.wait("Nothing fits.")
            terminal.press(ENTER, ctrl("r"), ctrl("x"), ctrl("f"))
            terminal.wait("Nothing fits.")
            terminal.press(ctrl("c"))
            assert terminal.end() == 0

    def test_rename(self, at, store):
        with at("-r") as terminal:
            terminal.wait("Gloves")
            terminal.press(ctrl("r"))
            terminal.wait("New title: Gloves")
            terminal.press(" and scarves", ENTER)
            terminal.wait("Renamed to Gloves and scarves.")
        assert store.get_session("cli:gloves").title == "Gloves and scarves"

    def test_rename_can_be_left(self, at, store):
        with at("-r") as terminal:
            terminal.wait("Gloves")
            terminal.press(ctrl("r"))
            terminal.wait("New title:")
            terminal.press("x", ctrl("c"))
            terminal.wait("Search:")
        assert store.get_session("cli:gloves").title == "Gloves"

    def test_delete_and_undo(self, at, store):
        with at("-r") as terminal:
            terminal.wait("Gloves")
            terminal.press(ctrl("x"))
            terminal.wait("Gloves is in the trash. Ctrl-Z brings it back.")
            assert store.get_session("cli:gloves") is None
            terminal.press(ctrl("z"))
            terminal.wait("Gloves is back.")
        assert store.get_session("cli:gloves") is not None

    @pytest.mark.parametrize("key", ["f", "x"])
    def test_one_that_another_window_took_away(self, at, store, key):
        with at("-r") as terminal:
            terminal.wait("Gloves", "Where are my gloves?")
            store.erase_session("cli:gloves")
            terminal.press(ctrl(key))
            terminal.wait("There is no session 'cli:gloves'")
            terminal.press(DOWN, ENTER)
            terminal.wait("answer to Where is my hat?", PROMPT)

    def test_renaming_one_that_was_taken_away(self, at, store):
        with at("-r") as terminal:
            terminal.wait("Gloves", "Where are my gloves?")
            terminal.press(ctrl("r"))
            terminal.wait("New title: Gloves")
            store.erase_session("cli:gloves")
            terminal.press("x", ENTER)
            terminal.wait("There is no session 'cli:gloves'")

    def test_fork(self, at, store):
        with at("-r") as terminal:
            terminal.wait("Gloves")
            terminal.press(ctrl("f"))
            terminal.wait("Gloves (fork)", PROMPT)
        (fork,) = [s for s in store.list_sessions() if s.relation == "fork"]
        assert fork.parent == "cli:gloves"

    def test_leaving_with_escape(self, at, store):
        with at("-r") as terminal:
            terminal.wait("Gloves")
            terminal.press(ESCAPE)
            assert terminal.end() == 0
        assert len(store.list_sessions()) == 3


class TestTwoWindows:
    """Another process in the middle of a turn: here a thread with a store of its own holds it."""

    @pytest.fixture
    def other(self, path):
        release, begun = threading.Event(), threading.Event()

        async def hold():
            async with recollect.open_async(path) as store:
                session = await store.session("cli:default")
                async with session.turn("from elsewhere") as turn:
                    begun.set()
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
        assert begun.wait(60)
        yield release
        release.set()
        thread.join(10)

    def test_the_second_is_told_and_watches(self, at, other, store):
        with at("--session") as terminal:
            terminal.wait("from elsewhere", "A program (process", "> Attach:")
            terminal.press(ENTER)
            terminal.wait("Attached.", PROMPT)
            terminal.say("say mine")
            terminal.wait("Another window is in the middle of a turn", "> Watch it and wait")
            terminal.press(ENTER)
            terminal.wait("Watching.")
            other.set()
            terminal.wait("answered elsewhere", "The other turn is over.", "> say mine")
            terminal.press(ENTER)
            terminal.wait("mine\n", "tokens in")
        said = [m.text for m in store.session("cli:default").messages()]
        assert said == ["from elsewhere", "answered elsewhere", "say mine", "mine"]

    def test_or_forks(self, at, other, store):
        with at("--session") as terminal:
            terminal.wait("> Attach:")
            terminal.press(ENTER)
            terminal.wait("Attached.", PROMPT)
            terminal.say("say mine")
            terminal.wait("> Watch it and wait")
            terminal.press(ctrl("f"))
            terminal.wait("You are in a fork", "mine\n", "tokens in")
        assert [m.text for m in store.session("cli:default").messages()] == ["from elsewhere"]

    def test_or_takes_over(self, at, other, store):
        with at("--session") as terminal:
            terminal.wait("> Attach:")
            terminal.press(ENTER)
            terminal.wait("Attached.", PROMPT)
            terminal.say("say mine")
            terminal.wait("> Watch it and wait")
            terminal.press(ctrl("t"))
            terminal.wait("mine\n", "tokens in")
        turns = store.session("cli:default").turns()
        assert [turn.status for turn in turns] == ["interrupted", "completed"]


def test_a_result_of_before_is_shown_with_the_tool_that_was_asked(at, store):
    session = store.session("cli:coat")
    session.append({"role": "user", "content": "Do I need a coat?"})
    call = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}}
    session.append({"role": "assistant", "content": [call]})
    session.record_tool_result("c1", "4 degrees, rain")
    with at("--session", "coat") as terminal:
        terminal.wait("✓ weather: 4 degrees, rain", PROMPT)
        terminal.press(ctrl("d"))
        assert terminal.end() == 0
