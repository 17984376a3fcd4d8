"""Two processes in one session: the second sees a menu, and attaches, forks or takes over."""

from __future__ import annotations

import os
import signal

import pytest

pytest.importorskip("prompt_toolkit")
pytest.importorskip("pyte")

from terminal_emulator import DOWN, ENTER, Terminal, ctrl, wait_until

import recollect

PROMPT = "\n>\n"
ATTACH_MENU = ("This conversation has been open in a terminal (process", " since ", "> Attach:", "Ctrl-T")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "recollect.db")


@pytest.fixture
def open_terminal(path, tmp_path):
    def start(*arguments):
        env = {
            "PATH": os.environ["PATH"], "HOME": str(tmp_path), "RECOLLECT_DB": path, "LC_ALL": "C.UTF-8",
            "TERM": "xterm-256color",
        }  # fmt: skip
        return Terminal("chat", *(arguments or ("--session",)), env=env, columns=100)

    return start


@pytest.fixture
def store(path):
    with recollect.open(path) as store:
        yield store


@pytest.fixture
def first(open_terminal):
    with open_terminal() as terminal:
        terminal.wait(PROMPT)
        terminal.submit("say hello from one")
        terminal.wait("tokens in", PROMPT)
        yield terminal


def read_texts(store, id="cli:default"):
    return [message.text for message in store.session(id).messages()]


def test_the_second_attaches_and_both_take_turns(open_terminal, first, store):
    with open_terminal() as second:
        second.wait("hello from one", *ATTACH_MENU)
        second.press(ENTER)
        second.wait("Attached.", PROMPT)
        second.submit("say hello from two")
        second.wait("hello from two\n", "tokens in")
        first.wait("From another window:", "> say hello from two", "hello from two\n")
        first.submit("say and one again")
        second.wait("> say and one again", "From another window:")
        first.wait("and one again\n", "tokens in")
        assert first.screen_text.count("From another window:") == 1
        wait_until(lambda: len(read_texts(store)) == 6)
        second.press(ctrl("d"))
        assert second.wait_for_exit() == 0
        assert [presence.surface for presence in store.session("cli:default").presence.list()] == ["terminal"]
    assert read_texts(store)[1::2] == ["hello from one", "hello from two", "and one again"]


def test_typed_text_stays_when_the_other_window_sends_a_message(open_terminal, first):
    with open_terminal() as second:
        second.wait(*ATTACH_MENU)
        second.press(ENTER)
        second.wait("Attached.", PROMPT)
        second.press("half a thought")
        second.wait("> half a thought")
        first.submit("say news")
        second.wait("> say news", "news\n", "> half a thought")


def test_the_second_forks(open_terminal, first, store):
    with open_terminal() as second:
        second.wait(*ATTACH_MENU)
        second.press(ctrl("f"))
        second.wait("You are now in a fork", PROMPT)
        second.submit("say apart")
        second.wait("apart\n", "tokens in")
    assert read_texts(store) == ["say hello from one", "hello from one"]
    (fork,) = [session for session in store.list_sessions() if session.relation == "fork"]
    assert read_texts(store, fork.id)[2:] == ["say apart", "apart"]


def test_the_second_takes_over_and_the_first_is_notified(open_terminal, first, store):
    with open_terminal() as second:
        second.wait(*ATTACH_MENU)
        second.press(ctrl("t"))
        second.wait("You took over the conversation.", PROMPT)
        first.wait("This conversation was taken over by a terminal (process", PROMPT)
        first.submit("say mine after all")
        first.wait("> Attach again", "Take back the conversation")
        first.press(ctrl("t"))
        wait_until(lambda: read_texts(store)[2:] == ["say mine after all", "mine after all"])
        first.wait("mine after all\n", "tokens in")
        second.wait("This conversation was taken over by a terminal", "> say mine after all")
        second.submit("say elsewhere")
        second.wait("> Attach again")
        second.press(ctrl("f"))
        second.wait("You are now in a fork", "elsewhere\n", "tokens in")
    assert read_texts(store)[2:] == ["say mine after all", "mine after all"]


def test_taking_over_interrupts_an_answer_in_progress(open_terminal, first, store):
    first.submit("Tell me a story in 500 chapters")
    first.wait("Chapter ")
    with open_terminal() as second:
        second.wait(*ATTACH_MENU)
        second.press(ctrl("t"))
        second.wait("You took over the conversation.")
        first.wait("Another process took over this conversation", PROMPT)
        second.submit("say mine")
        second.wait("mine\n", "tokens in")
    statuses = [turn.status for turn in store.session("cli:default").turns.list()]
    assert statuses == ["completed", "interrupted", "completed"]


SENTENCE = "Tell me what time it is"


@pytest.mark.parametrize("keys", [(SENTENCE, ENTER), (*SENTENCE, ENTER), (SENTENCE + ENTER,)])
def test_a_message_typed_at_the_menu_is_sent_and_selects_nothing(open_terminal, first, store, keys):
    with open_terminal() as second:
        second.wait(*ATTACH_MENU)
        second.press(*keys)
        second.wait("Attached.", f"> {SENTENCE}", "tokens in", PROMPT)
        assert SENTENCE in read_texts(store)
        first.wait("From another window:", f"> {SENTENCE}")
        assert "taken over" not in first.screen_text
        assert len(store.session("cli:default").presence.list()) == 2


def test_text_pasted_at_the_menu_is_kept_and_selects_nothing(open_terminal, first, store):
    with open_terminal() as second:
        second.wait(*ATTACH_MENU)
        second.press("\x1b[200~take\rthis\x1b[201~")
        second.wait("> take\n  this")
        assert "Attached." not in second.screen_text
        second.press(ctrl("t"))
        second.wait("You took over the conversation.", "> take\n  this")
        second.press(ENTER)
        wait_until(lambda: "take\nthis" in read_texts(store))


def test_a_message_typed_before_the_menu_appears_is_sent(open_terminal, first, store):
    with open_terminal() as second:
        second.press(SENTENCE, ENTER)
        second.wait("Attached.", f"> {SENTENCE}", "tokens in", PROMPT)
        assert read_texts(store)[2] == SENTENCE
        assert len(store.session("cli:default").presence.list()) == 2


def test_arrow_keys_select_an_option(open_terminal, first, store):
    with open_terminal() as second:
        second.wait(*ATTACH_MENU)
        second.press(DOWN)
        second.wait("> Continue in a fork")
        second.press(DOWN, ENTER)
        second.wait("You took over the conversation.", PROMPT)


def test_text_typed_at_the_menu_is_appended_to_the_unsent_message(open_terminal, first, store):
    with open_terminal() as second:
        second.wait(*ATTACH_MENU)
        second.press(ENTER)
        second.wait("Attached.", PROMPT)
        first.submit("Tell me a story in 500 chapters")
        first.wait("Chapter ")
        second.submit("say mine")
        second.wait("waiting for an answer", "> Watch it and wait")
        second.submit("take your time")
        second.wait("> say mine\n  take your time")
        first.press(ctrl("c"))
        first.wait("Stopped.")
        second.press(ENTER)
        wait_until(lambda: "say mine\ntake your time" in read_texts(store))


def test_the_second_quits(open_terminal, first, store):
    with open_terminal() as second:
        second.wait(*ATTACH_MENU)
        second.press(ctrl("d"))
        assert second.wait_for_exit() == 0
    assert [presence.surface for presence in store.session("cli:default").presence.list()] == ["terminal"]


def test_a_killed_process_is_not_present(open_terminal, first, store):
    os.kill(first.pid, signal.SIGKILL)
    first.wait_for_exit()
    with open_terminal() as second:
        second.wait("hello from one", PROMPT)
        assert "has been open in" not in second.screen_text
        second.submit("say still fine")
        second.wait("still fine\n", "tokens in")
    assert len(read_texts(store)) == 4


def test_killed_during_an_answer(open_terminal, first, store):
    first.submit("Tell me a story in 500 chapters")
    first.wait("Chapter ")
    with open_terminal() as second:
        second.wait(*ATTACH_MENU)
        second.press(ENTER)
        second.wait("Attached.")
        os.kill(first.pid, signal.SIGKILL)
        first.wait_for_exit()
        second.submit("say still alive")
        second.wait("still alive\n", "tokens in")
    statuses = [turn.status for turn in store.session("cli:default").turns.list()]
    assert statuses == ["completed", "interrupted", "completed"]


def test_resuming_from_another_conversation_shows_the_menu(open_terminal, first):
    with open_terminal("-n", "Elsewhere") as second:
        second.wait(PROMPT)
        second.submit("/resume cli:default")
        second.wait("hello from one", *ATTACH_MENU)
        second.press(ENTER)
        second.wait("Attached.", PROMPT)


def test_a_pipe_prints_the_notice_to_standard_error(first, path, tmp_path):
    import subprocess
    import sys

    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RECOLLECT_DB": path, "LC_ALL": "C.UTF-8"}
    process = subprocess.run(
        [sys.executable, "-m", "recollect", "chat", "--session"], input="say piped", env=env, capture_output=True,
        text=True, timeout=60, check=True,
    )  # fmt: skip
    assert process.stdout == "piped\n"
    assert "This conversation has been open in a" in process.stderr
    first.wait("> say piped", "piped\n")


def test_a_session_deleted_by_another_process(first, store):
    store.delete_session("cli:default")
    first.wait("is in the trash", PROMPT)
    first.submit("say anything")
    first.wait("is in the trash", "> say anything")
