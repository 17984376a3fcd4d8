"""Processes: forked ones get connections of their own, many write at once, and nobody loads a driver for nothing."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading

import pytest

import recollect


def said(text):
    return {"role": "user", "content": text}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork() here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_has_connections_of_its_own(postgres):
    store = recollect.open(postgres)
    session = store.session("a")
    session.append(said("parent"))
    child = os.fork()
    if child == 0:
        try:
            session.append(said("child"))
            store.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    session.append(said("parent again"))
    assert [message.text for message in session.messages()] == ["parent", "child", "parent again"]
    store.close()


def _write(url, name, count):
    with recollect.open(url) as store:
        session = store.session(name)
        for number in range(count):
            session.append(said(f"{os.getpid()}:{number}"))


def test_processes_on_one_session(postgres):
    context = multiprocessing.get_context("spawn")
    running = [context.Process(target=_write, args=(postgres, "shared", 12)) for _ in range(3)]
    for process in running:
        process.start()
    for process in running:
        process.join(120)
    assert [process.exitcode for process in running] == [0, 0, 0]
    with recollect.open(postgres) as store:
        messages = store.session("shared").messages()
        assert [message.position for message in messages] == list(range(1, 37))
        for process in running:
            own = [message.text for message in messages if message.text.startswith(f"{process.pid}:")]
            assert own == [f"{process.pid}:{number}" for number in range(12)]


def test_threads_that_erase_fork_and_append(postgres):
    """Operations that look at a whole tree, beside others that write in it: what is left adds up."""
    with recollect.open(postgres) as store:
        root = store.session("root")
        root.append([said(str(number)) for number in range(6)])

        def churn(number):
            for turn in range(6):
                fork = store.session("root").fork(at=(turn % 6) + 1, id=f"f{number}-{turn}")
                fork.append(said("x"))
                fork.delete_message(1)
                fork.restore_message(1)
                fork.fork(id=f"g{number}-{turn}").append(said("y"))
                store.erase_session(fork.id, forks="erase" if turn % 2 else "keep")

        threads = [threading.Thread(target=churn, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.session("root").message_count == len(store.session("root").messages()) == 6
        for session in store.list_sessions(200):
            assert session.message_count == len(session.messages())
            if session.id != "root":
                assert session.messages()[-1].text == "y"


@pytest.mark.parametrize(
    "code",
    [
        "import recollect",
        "import recollect; recollect.open(':memory:').session('a')",
        "import recollect; recollect.open_async",
    ],
)
def test_the_driver_is_loaded_when_it_is_used(code):
    check = (
        f"{code}\nimport sys; assert not {{'psycopg', 'psycopg_pool', 'recollect.engine.postgres'}} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)


def test_a_missing_driver_says_how_to_get_it():
    code = (
        "import sys; sys.modules['psycopg'] = None\nimport recollect\n"
        "try: recollect.open('postgresql://h/x')\n"
        "except recollect.StoreUnavailable as error: assert 'recollect[postgres]' in str(error)\n"
        "else: raise AssertionError"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
