"""The worker of docs/how-to/queue-worker.md, as processes: one is killed, and every message has one answer."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys

import pytest
from docs_programs import start, wait_for_line, wait_until, write_programs

import recollect

PAGE = "docs/how-to/queue-worker.md"
# A worker that stops at a place of its second job. It prints a line there, and the test kills it.
STOP = """
import sys, time
import jobs, recollect, worker

jobs.HIDDEN = 2.0
place, database = sys.argv[1:]
count = 0

def stop():
    print("stopped", flush=True)
    time.sleep(600)

def stop_at(owner, name, *, after):
    original = getattr(owner, name)
    def replacement(*arguments, **named):
        global count
        count += 1
        if count == 2 and not after:
            stop()
        result = original(*arguments, **named)
        if count == 2:
            stop()
        return result
    setattr(owner, name, replacement)

if place == "the turn is opened":
    stop_at(recollect.Session, "turn", after=True)
elif place == "the model answers":
    stop_at(worker, "call_model", after=False)
elif place == "the answer is stored":
    stop_at(recollect.Turn, "add", after=True)
elif place == "the turn is completed":
    stop_at(recollect.Turn, "complete", after=True)
worker.work(recollect.open(database), jobs.Jobs("jobs.db"))
"""
PLACES = ["the turn is opened", "the model answers", "the answer is stored", "the turn is completed"]
MESSAGES = 12  # messages, four for each of three conversations: the workers always have another one to take


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert write_programs(PAGE, tmp_path) == ["worker.py", "jobs.py", "receive.py", "stop_and_send.py"]
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "stopping_worker.py").write_text(STOP, encoding="utf-8")
    return tmp_path


def put_messages():
    code = (
        "from jobs import Job, Jobs\n"
        "jobs = Jobs('jobs.db')\n"
        f"for number in range({MESSAGES}):\n"
        "    for delivery in range(2): jobs.put(Job(f'm{number}', f'chat:{number % 3}', f'Question {number}'))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def count_jobs():
    with contextlib.closing(sqlite3.connect("jobs.db", timeout=60)) as db:
        return db.execute("SELECT count(*) FROM jobs").fetchone()[0]


def check_answers(database):
    """Check that every message has one turn with one answer, in the order of its conversation."""
    with recollect.open(database) as store:
        for chat in range(3):
            session = store.session(f"chat:{chat}", create=False)
            numbers = range(chat, MESSAGES, 3)
            texts = [text for number in numbers for text in (f"Question {number}", f"Answer to: Question {number}")]
            assert [message.text for message in session.messages()] == texts
            assert [turn.status for turn in session.turns.list()] == ["completed"] * len(numbers)


def run_workers(database, place):
    put_messages()
    with start("stopping_worker.py", place, database) as victim:
        wait_for_line(victim, "stopped")
        with start("stopping_worker.py", "never", database):
            victim.kill()
            wait_until(lambda: count_jobs() == 0)
    check_answers(database)


@pytest.mark.parametrize("place", PLACES)
def test_a_killed_worker_loses_no_message_and_none_is_answered_twice(folder, place):
    run_workers("conversations.db", place)


def test_the_same_on_postgresql(folder, postgres):
    run_workers(postgres, "the model answers")


def test_two_workers_share_the_messages(folder):
    put_messages()
    with start("worker.py"), start("worker.py"):
        wait_until(lambda: count_jobs() == 0)
    check_answers("conversations.db")


def test_a_message_of_a_busy_conversation_is_answered_later(folder):
    subprocess.run([sys.executable, "receive.py"], check=True, timeout=120)
    store = recollect.open("conversations.db")
    other = store.session("chat:1").turn("From the web app")
    code = "import worker; turn = worker.recollect.Session.turn; worker.recollect.Session.turn = lambda *a, **n: turn(*a, **n | {'wait': 0}); worker.work(worker.recollect.open('conversations.db'), worker.Jobs('jobs.db'))"
    with start("-uc", code) as process:
        wait_for_line(process, "SessionBusy")
        other.add({"role": "assistant", "content": "Yes."})
        other.complete()
        wait_until(lambda: count_jobs() == 0)
    assert [turn.status for turn in store.session("chat:1").turns.list()] == ["completed"] * 3
    store.close()


def test_a_late_worker_stores_no_second_answer(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    code = (
        "import recollect, worker\n"
        "from jobs import Job\n"
        "store = recollect.open('conversations.db'); session = store.session('chat:1')\n"
        "job = Job('m1', 'chat:1', 'Question')\n"
        "def interrupted(messages):\n"
        "    session.turns.list()[-1]; other.turns.resume('1.1').add({'role': 'assistant', 'content': 'First'}, key='m1:answer')\n"
        "    return {'role': 'assistant', 'content': 'Second'}\n"
        "other = recollect.open('conversations.db').session('chat:1')\n"
        "worker.call_model = interrupted\n"
        "try:\n    worker.answer(session, job)\n"
        "except recollect.KeyReused:\n    print('refused')\n"
        "worker.answer(session, job)\n"
        "print([message.text for message in session.messages()], session.turns.list()[0].status)\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert process.stdout == "refused\n['Question', 'First'] completed\n"


def test_a_message_that_takes_over(folder):
    process = subprocess.run(
        [sys.executable, "stop_and_send.py"], capture_output=True, text=True, check=True, timeout=120
    )
    assert process.stdout == "message-1 was taken over\n"
