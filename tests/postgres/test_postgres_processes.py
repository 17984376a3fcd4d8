"""Processes and threads: forked children, concurrent writers, and lazy loading of the driver."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading

import pytest

import recollect


def user_message(text):
    return {"role": "user", "content": text}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_opens_its_own_connections(postgres):
    store = recollect.open(postgres)
    session = store.session("a")
    session.append(user_message("parent"))
    child = os.fork()
    if child == 0:
        try:
            session.append(user_message("child"))
            store.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    session.append(user_message("parent again"))
    assert [message.text for message in session.messages()] == ["parent", "child", "parent again"]
    store.close()


def _write(url, name, count):
    with recollect.open(url) as store:
        session = store.session(name)
        for number in range(count):
            session.append(user_message(f"{os.getpid()}:{number}"))


def test_processes_append_to_one_session(postgres):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write, args=(postgres, "shared", 12)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    with recollect.open(postgres) as store:
        messages = store.session("shared").messages()
        assert [message.position for message in messages] == list(range(1, 37))
        for process in processes:
            own = [message.text for message in messages if message.text.startswith(f"{process.pid}:")]
            assert own == [f"{process.pid}:{number}" for number in range(12)]


def _append_keys_and_pop(url, barrier, results):
    with recollect.open(url) as store:
        session = store.session("shared")
        barrier.wait(60)
        ids = {}
        for start in range(0, 60, 3):
            keys = [f"k{number}" for number in range(start, start + 7)]
            drafts = [recollect.Draft(role="user", parts=(recollect.TextPart(text=key),), key=key) for key in keys]
            ids |= zip(keys, session.append(drafts).ids, strict=True)
        barrier.wait(60)
        popped_ids = []
        while messages := session.pop(2):
            popped_ids += [message.id for message in messages]
        results.put((ids, popped_ids))


def test_processes_store_each_key_once_and_pop_each_message_once(postgres):
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(4), context.Queue()
    processes = [context.Process(target=_append_keys_and_pop, args=(postgres, barrier, results)) for _ in range(4)]
    for process in processes:
        process.start()
    (ids, popped_ids), *others = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(60)
    assert len(ids) == 64
    for other_ids, other_popped_ids in others:
        assert other_ids == ids
        popped_ids += other_popped_ids
    assert sorted(popped_ids) == sorted(ids.values())
    with recollect.open(postgres) as store:
        assert store.session("shared").message_count == 0
        assert store.maintenance.check().problems == ()


def test_threads_erase_fork_and_append_concurrently(postgres):
    """Operations on a whole tree next to writes in it: the counts stay correct."""
    with recollect.open(postgres) as store:
        root = store.session("root")
        root.append([user_message(str(number)) for number in range(6)])

        def fork_and_erase(number):
            for step in range(6):
                fork = store.session("root").fork(at=(step % 6) + 1, id=f"f{number}-{step}")
                fork.append(user_message("x"))
                fork.delete_messages([1])
                fork.restore_messages([1])
                fork.fork(id=f"g{number}-{step}").append(user_message("y"))
                store.erase_session(fork.id, forks="erase" if step % 2 else "keep")

        threads = [threading.Thread(target=fork_and_erase, args=(number,)) for number in range(4)]
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
def test_the_driver_is_imported_on_first_use(code):
    check = (
        f"{code}\nimport sys; assert not {{'psycopg', 'psycopg_pool', 'recollect.engine.postgres'}} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)


def test_a_missing_driver_names_the_extra_to_install():
    code = (
        "import sys; sys.modules['psycopg'] = None\nimport recollect\n"
        "try: recollect.open('postgresql://h/x')\n"
        "except recollect.StoreUnavailable as error: assert 'recollect[postgres]' in str(error)\n"
        "else: raise AssertionError"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
