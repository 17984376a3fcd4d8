"""Two processes that talk in one session: the second is told, and attaches, forks or takes over."""

from __future__ import annotations

import os
import signal

import pytest

pytest.importorskip("prompt_toolkit")
pytest.importorskip("pyte")

from at_terminal import DOWN, ENTER, Terminal, ctrl, until

import recollect

PROMPT = "\n>\n"
MEETING = ("A terminal (process", "talks in this session since", "> Attach:", "Ctrl-T")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "recollect.db")


@pytest.fixture
def at(path, tmp_path):
    def start(*words):
        env = {
            "PATH": os.environ["PATH"], "HOME": str(tmp_path), "RECOLLECT_DB": path, "LC_ALL": "C.UTF-8",
            "TERM": "xterm-256color",
        }  # fmt: skip
        return Terminal("chat", *(words or ("--session",)), env=env, columns=100)

    return start


@pytest.fixture
def store(path):
    with recollect.open(path) as store:
        yield store


@pytest.fixture
def first(at):
    with at() as terminal:
        terminal.wait(PROMPT)
        terminal.say("say hello from one")
        terminal.wait("tokens in", PROMPT)
        yield terminal


def said(store, id="cli:default"):
    return [message.text for message in store.session(id).messages()]


def test_the_second_attaches_and_both_take_turns(at, first, store):
    with at() as second:
        second.wait("hello from one", *MEETING)
        second.press(ENTER)
        second.wait("Attached.", PROMPT)
        second.say("say hello from two")
        second.wait("hello from two\n", "tokens in")
        first.wait("From another window:", "> say hello from two", "hello from two\n")
        first.say("say and one again")
        second.wait("> say and one again", "From another window:")
        first.wait("and one again\n", "tokens in")
        assert first.shown.count("From another window:") == 1
        until(lambda: len(said(store)) == 6)
        second.press(ctrl("d"))
        assert second.end() == 0
        assert [one.surface for one in store.session("cli:default").present()] == ["terminal"]
    assert said(store)[1::2] == ["hello from one", "hello from two", "and one again"]


def test_what_is_typed_stays_when_the_other_speaks(at, first):
    with at() as second:
        second.wait(*MEETING)
        second.press(ENTER)
        second.wait("Attached.", PROMPT)
        second.press("half a thought")
        second.wait("> half a thought")
        first.say("say news")
        second.wait("> say news", "news\n", "> half a thought")


def test_the_second_forks(at, first, store):
    with at() as second:
        second.wait(*MEETING)
        second.press(ctrl("f"))
        second.wait("You are in a fork", PROMPT)
        second.say("say apart")
        second.wait("apart\n", "tokens in")
    assert said(store) == ["say hello from one", "hello from one"]
    (fork,) = [session for session in store.list_sessions() if session.relation == "fork"]
    assert said(store, fork.id)[2:] == ["say apart", "apart"]


def test_the_second_takes_over_and_the_first_is_told(at, first, store):
    with at() as second:
        second.wait(*MEETING)
        second.press(ctrl("t"))
        second.wait("The session is yours.", PROMPT)
        first.wait("This session was taken over by a terminal (process", PROMPT)
        first.say("say mine after all")
        first.wait("> Attach again", "Take the conversation back")
        first.press(ctrl("t"))
        until(lambda: said(store)[2:] == ["say mine after all", "mine after all"])
        first.wait("mine after all\n", "tokens in")
        second.wait("This session was taken over by a terminal", "> say mine after all")
        second.say("say beside")
        second.wait("> Attach again")
        second.press(ctrl("f"))
        second.wait("You are in a fork", "beside\n", "tokens in")
    assert said(store)[2:] == ["say mine after all", "mine after all"]


def test_taking_over_ends_an_answer_in_progress(at, first, store):
    first.say("Tell me a story in 500 chapters")
    first.wait("Chapter ")
    with at() as second:
        second.wait(*MEETING)
        second.press(ctrl("t"))
        second.wait("The session is yours.")
        first.wait("Another process took this session over", PROMPT)
        second.say("say mine")
        second.wait("mine\n", "tokens in")
    statuses = [turn.status for turn in store.session("cli:default").turns()]
    assert statuses == ["completed", "interrupted", "completed"]


SENTENCE = "Tell me what time it is"


@pytest.mark.parametrize("keys", [(SENTENCE, ENTER), (*SENTENCE, ENTER), (SENTENCE + ENTER,)])
def test_a_sentence_at_the_menu_is_sent_and_chooses_nothing(at, first, store, keys):
    with at() as second:
        second.wait(*MEETING)
        second.press(*keys)
        second.wait("Attached.", f"> {SENTENCE}", "tokens in", PROMPT)
        assert SENTENCE in said(store)
        first.wait("From another window:", f"> {SENTENCE}")
        assert "taken over" not in first.shown
        assert len(store.session("cli:default").present()) == 2


def test_a_pasted_text_at_the_menu_is_kept_and_chooses_nothing(at, first, store):
    with at() as second:
        second.wait(*MEETING)
        second.press("\x1b[200~take\rthis\x1b[201~")
        second.wait("> take\n  this")
        assert "Attached." not in second.shown
        second.press(ctrl("t"))
        second.wait("The session is yours.", "> take\n  this")
        second.press(ENTER)
        until(lambda: "take\nthis" in said(store))


def test_a_sentence_typed_before_the_menu_comes_is_sent(at, first, store):
    with at() as second:
        second.press(SENTENCE, ENTER)
        second.wait("Attached.", f"> {SENTENCE}", "tokens in", PROMPT)
        assert said(store)[2] == SENTENCE
        assert len(store.session("cli:default").present()) == 2


def test_the_arrows_choose(at, first, store):
    with at() as second:
        second.wait(*MEETING)
        second.press(DOWN)
        second.wait("> Continue in a fork")
        second.press(DOWN, ENTER)
        second.wait("The session is yours.", PROMPT)


def test_text_at_the_menu_of_a_message_that_was_not_sent_is_kept_with_it(at, first, store):
    with at() as second:
        second.wait(*MEETING)
        second.press(ENTER)
        second.wait("Attached.", PROMPT)
        first.say("Tell me a story in 500 chapters")
        first.wait("Chapter ")
        second.say("say mine")
        second.wait("in the middle of a turn", "> Watch it and wait")
        second.say("take your time")
        second.wait("> say mine\n  take your time")
        first.press(ctrl("c"))
        first.wait("Stopped.")
        second.press(ENTER)
        until(lambda: "say mine\ntake your time" in said(store))


def test_the_second_leaves(at, first, store):
    with at() as second:
        second.wait(*MEETING)
        second.press(ctrl("d"))
        assert second.end() == 0
    assert [one.surface for one in store.session("cli:default").present()] == ["terminal"]


def test_one_that_was_killed_is_not_there(at, first, store):
    os.kill(first.pid, signal.SIGKILL)
    first.end()
    with at() as second:
        second.wait("hello from one", PROMPT)
        assert "talks in this session" not in second.shown
        second.say("say still fine")
        second.wait("still fine\n", "tokens in")
    assert len(said(store)) == 4


def test_killed_in_the_middle_of_an_answer(at, first, store):
    first.say("Tell me a story in 500 chapters")
    first.wait("Chapter ")
    with at() as second:
        second.wait(*MEETING)
        second.press(ENTER)
        second.wait("Attached.")
        os.kill(first.pid, signal.SIGKILL)
        first.end()
        second.say("say going on")
        second.wait("going on\n", "tokens in")
    statuses = [turn.status for turn in store.session("cli:default").turns()]
    assert statuses == ["completed", "interrupted", "completed"]


def test_resuming_inside_a_talk_meets_too(at, first):
    with at("-n", "Elsewhere") as second:
        second.wait(PROMPT)
        second.say("/resume cli:default")
        second.wait("hello from one", *MEETING)
        second.press(ENTER)
        second.wait("Attached.", PROMPT)


def test_a_pipe_is_told_on_the_side(first, path, tmp_path):
    import subprocess
    import sys

    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RECOLLECT_DB": path, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "-m", "recollect", "chat", "--session"], input="say piped", env=env, capture_output=True,
        text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "piped\n"
    assert "talks in this session since" in done.stderr
    first.wait("> say piped", "piped\n")


def test_a_session_that_another_deletes(first, store):
    store.delete_session("cli:default")
    first.wait("is in the trash", PROMPT)
    first.say("say anything")
    first.wait("is in the trash", "> say anything")
