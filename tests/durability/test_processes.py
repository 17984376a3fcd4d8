"""Many processes and threads on one file, and forked processes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import recollect

PROCESSES, THREADS, COUNT = 6, 3, 30


def test_processes_with_threads_append_to_one_file(path, spawn, check_database):
    recollect.open(path).close()
    children = [spawn("append_from_threads", path, number, THREADS, COUNT) for number in range(PROCESSES)]
    for child in children:
        assert child.stdout.readline() == b"ready\n"
    for child in children:
        child.stdin.write(b"go\n")
        child.stdin.flush()
    error_outputs = [child.communicate(timeout=120)[1].decode() for child in children]
    assert error_outputs == [""] * PROCESSES
    with recollect.open(path) as store:
        for process in range(PROCESSES):
            for thread in range(THREADS):
                own = [message.text for message in store.get_session(f"own:{process}:{thread}").messages()]
                assert own == [str(number) for number in range(COUNT)]
        check_shared(store.get_session("cli:shared").messages())
    check_database(path)


def check_shared(messages) -> None:
    """Check that no message is lost or duplicated, each writer's messages are in order, and no append is split."""
    assert len(messages) == PROCESSES * THREADS * COUNT * 2
    assert [message.position for message in messages] == list(range(1, len(messages) + 1))
    by_writer: dict[str, list[str]] = {}
    for first, second in zip(messages[::2], messages[1::2], strict=True):
        assert second.text == first.text + "+"
        writer, number = first.text.split()
        by_writer.setdefault(writer, []).append(number)
    assert len(by_writer) == PROCESSES * THREADS
    assert all(numbers == [str(number) for number in range(COUNT)] for numbers in by_writer.values())


def test_processes_store_each_key_once_and_pop_each_message_once(path, spawn):
    recollect.open(path).close()
    children = [spawn("append_keys_and_pop", path, 60) for _ in range(4)]
    check_keys_and_pops(path, children, 57 + 7)


def check_keys_and_pops(path, children, count) -> None:
    """Start the children `append_keys_and_pop` together, and compare what they print with the store."""
    for child in children:
        assert child.stdout.readline() == b"ready\n"
    tell_all(children)
    ids, *others = [json.loads(child.stdout.readline()) for child in children]
    assert all(other == ids for other in others)
    with recollect.open(path) as store:
        messages = store.session("cli:shared").messages()
        assert {message.key: message.id for message in messages} == ids
        assert len(messages) == count
        tell_all(children)
        popped_ids = [id for child in children for id in json.loads(child.stdout.readline())]
        assert sorted(popped_ids) == sorted(ids.values())
        assert [child.communicate(timeout=60)[1] for child in children] == [b""] * len(children)
        assert store.session("cli:shared").messages() == []
        assert store.maintenance.check().problems == ()


def tell_all(children) -> None:
    for child in children:
        child.stdin.write(b"go\n")
        child.stdin.flush()


def run_forking_script(code: str, path: str) -> None:
    """Run a script that calls fork() in a separate process, away from the threads of the test runner."""
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRELUDE + code, path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.endswith("the end\n")


PRELUDE = """
import asyncio, gc, multiprocessing, os, sys, threading, time
import recollect
from recollect.errors import StoreClosed, SessionBusy
path = sys.argv[1]
def user_message(text): return {"role": "user", "content": str(text)}
def texts(session): return [message.text for message in session.messages()]
def wait_for(pid): assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""

EXIT_STATEMENTS = {
    "os._exit": "os._exit(0)",
    "normally": "sys.exit(0)",
    "closing": "store.close(); sys.exit(0)",
    "collecting": "del store, session; gc.collect(); sys.exit(0)",
}


@pytest.mark.parametrize("exit_statement", EXIT_STATEMENTS.values(), ids=EXIT_STATEMENTS)
def test_forked_children_and_their_parent_use_one_store(path, check_database, exit_statement):
    run_forking_script(
        f"""
store = recollect.open(path)
session = store.session("cli:parent")
for number in range(20): session.append(user_message(number))
session.messages()
children = []
for child in range(4):
    pid = os.fork()
    if pid == 0:
        own = store.session(f"cli:child{{child}}")
        for number in range(20): own.append(user_message(number))
        session.append(user_message(f"from {{child}}"))
        assert len(texts(session)) >= 21
        {exit_statement}
    children.append(pid)
    for number in range(10): session.append(user_message(f"more {{child}} {{number}}"))
for pid in children: wait_for(pid)
stored_texts = texts(store.session("cli:parent"))
assert len(stored_texts) == 20 + 40 + 4, len(stored_texts)
assert [text for text in stored_texts if text.startswith("more")] == [f"more {{c}} {{n}}" for c in range(4) for n in range(10)]
for child in range(4):
    assert texts(store.session(f"cli:child{{child}}")) == [str(number) for number in range(20)]
session.append(user_message("last"))
store.close()
with recollect.open(path) as store: assert texts(store.session("cli:parent"))[-1] == "last"
print("the end")
""",
        path,
    )
    check_database(path)


@pytest.mark.parametrize("exit_statement", EXIT_STATEMENTS.values(), ids=EXIT_STATEMENTS)
def test_an_idle_forked_child_does_not_affect_the_parent(path, check_database, exit_statement):
    """It must neither checkpoint the parent's WAL nor drop its locks: other processes would then overwrite it."""
    run_forking_script(
        f"""
import subprocess
other = "import sys, recollect; s = recollect.open(sys.argv[1]); [s.session('cli:other').append({{'role': 'user', 'content': 'o'}}) for _ in range(5)]; s.close()"
store = recollect.open(path)
session = store.session("cli:parent")
for number in range(50): session.append(user_message(number))
session.messages()
for child in range(3):
    for attempt in range(2):  # twice without using the store in between
        pid = os.fork()
        if pid == 0:
            {exit_statement}
        wait_for(pid)
    assert len(texts(session)) == 50 + child
    subprocess.run([sys.executable, "-c", other, path], check=True)
    session.append(user_message("on"))
    assert len(texts(store.session("cli:other"))) == 5 * (child + 1)
assert len(texts(session)) == 53
print("the end")
""",
        path,
    )
    check_database(path)


def test_fork_while_another_thread_writes(path, check_database):
    """The child's copy of the lock is held by a thread that does not exist in it."""
    run_forking_script(
        """
store = recollect.open(path, timeout=60)
session = store.session("cli:parent")
stop = threading.Event()
count = [0]
def write():
    while not stop.is_set():
        session.append(user_message(count[0])); count[0] += 1
writer = threading.Thread(target=write, daemon=True); writer.start()
children = []
for child in range(8):
    time.sleep(0.01)
    pid = os.fork()
    if pid == 0:
        own = store.session(f"cli:child{child}")
        for number in range(5): own.append(user_message(number))
        assert texts(own) == ["0", "1", "2", "3", "4"]
        os._exit(0)
    children.append(pid)
for pid in children: wait_for(pid)
stop.set(); writer.join()
assert texts(session) == [str(number) for number in range(count[0])]
for child in range(8): assert len(texts(store.session(f"cli:child{child}"))) == 5
print("the end")
""",
        path,
    )
    check_database(path)


@pytest.mark.parametrize(
    "module", ["recollect.storage.appends", "recollect.formats.registry", "recollect.formats.openai_chat"]
)
def test_fork_while_another_thread_imports(path, check_database, module):
    """The child's copy of an import lock is held by a thread that does not exist in it."""
    run_forking_script(
        f"slow = {module!r}\n"
        """
import importlib.machinery, signal
loading = threading.Event()
class Slow:
    def find_spec(self, name, path, target=None):
        if name != slow: return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (loading.set(), time.sleep(0.3), run(module))
        return spec
sys.meta_path.insert(0, Slow())
store = recollect.open(path)
session = store.session("cli:parent")
assert slow not in sys.modules
writer = threading.Thread(target=lambda: session.append(user_message(1))); writer.start()
loading.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    store.session("cli:child").append(user_message(1))
    os._exit(0)
wait_for(pid)
writer.join()
assert texts(session) == texts(store.session("cli:child")) == ["1"]
print("the end")
""",
        path,
    )
    check_database(path)


@pytest.mark.parametrize(
    "parent_end", ["store.close()", "os._exit(0)", "sys.exit(0)", "del store, session; gc.collect()"]
)
def test_a_forked_child_continues_after_its_parent_ended(path, check_database, parent_end):
    """A server that opens its store and then daemonizes, or that forks workers and closes its store."""
    code = f"""
store = recollect.open(path)
session = store.session("cli:a")
for number in range(3): session.append(user_message(f"parent {{number}}"))
session.messages()
ready, started = os.pipe()
left, leave = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(leave)
    for number in range(3): session.append(user_message(f"child {{number}}"))
    os.write(started, b"x")
    os.read(left, 1)  # returns when the parent has ended or closed its store
    for number in range(3, 6): session.append(user_message(f"child {{number}}"))
    stored_texts = texts(session)
    assert stored_texts == [f"{{who}} {{n}}" for who, count in (("parent", 3), ("child", 6)) for n in range(count)], stored_texts
    print("the end", flush=True)
    os._exit(0)
os.read(ready, 1)
{parent_end}
os.write(leave, b"x")
wait_for(pid)
"""
    run_forking_script(code, path)
    with recollect.open(path) as store:
        texts = [message.text for message in store.session("cli:a").messages()]
    assert texts == [f"{who} {n}" for who, count in (("parent", 3), ("child", 6)) for n in range(count)]
    check_database(path)


def test_forked_workers_continue_after_the_parent_closed(path, check_database):
    run_forking_script(
        """
store = recollect.open(path)
store.session("cli:a").append(user_message("first"))
workers = []
for worker in range(3):
    pid = os.fork()
    if pid == 0:
        own = store.session(f"cli:worker{worker}")
        for number in range(30):
            own.append(user_message(number)); time.sleep(0.01)
        os._exit(0)
    workers.append(pid)
time.sleep(0.1)
store.close()
for pid in workers: wait_for(pid)
with recollect.open(path) as store:
    for worker in range(3):
        assert texts(store.session(f"cli:worker{worker}")) == [str(number) for number in range(30)]
print("the end")
""",
        path,
    )
    check_database(path)


def test_multiprocessing_with_fork(path, check_database):
    run_forking_script(
        """
store = recollect.open(path)
session = store.session("cli:shared")
def work(number):
    for step in range(10): session.append(user_message(f"{number} {step}"))
    return os.getpid()
pool = multiprocessing.get_context("fork").Pool(4)
result = pool.map_async(work, range(8))
for step in range(20): session.append(user_message(f"parent {step}"))
assert os.getpid() not in result.get(30)
pool.close(); pool.join()
stored_texts = texts(session)
assert len(stored_texts) == len(set(stored_texts)) == 100
for writer in [*map(str, range(8)), "parent"]:
    steps = [int(text.split()[1]) for text in stored_texts if text.split()[0] == writer]
    assert steps == sorted(steps)
print("the end")
""",
        path,
    )
    check_database(path)


def test_a_grandchild_opens_its_own_connections(path, check_database):
    run_forking_script(
        """
store = recollect.open(path)
session = store.session("cli:a"); session.append(user_message(0))
pid = os.fork()
if pid == 0:
    session.append(user_message(1))
    inner = os.fork()
    if inner == 0:
        session.append(user_message(2)); os._exit(0)
    wait_for(inner)
    session.append(user_message(3)); os._exit(0)
wait_for(pid)
session.append(user_message(4))
assert texts(session) == ["0", "1", "2", "3", "4"]
print("the end")
""",
        path,
    )
    check_database(path)


def test_a_forked_child_cannot_take_the_turn_of_its_parent(path):
    run_forking_script(
        """
store = recollect.open(path)
session = store.session("cli:a")
with session.turn("mine") as turn:
    pid = os.fork()
    if pid == 0:
        try:
            store.session("cli:a").turn("mine too")
        except SessionBusy as busy:
            os._exit(0 if str(os.getppid()) in busy.holder else 2)
        os._exit(1)
    wait_for(pid)
    turn.add({"role": "assistant", "content": "still"})
assert [turn.status for turn in session.turns.list()] == ["completed"]
print("the end")
""",
        path,
    )


def test_a_forked_child_uses_an_async_store(path, check_database):
    run_forking_script(
        """
async def main():
    store = await recollect.open_async(path)
    session = await store.session("cli:a")
    await asyncio.gather(*(session.append(user_message(number)) for number in range(20)))
    await session.messages()
    pid = os.fork()
    if pid == 0:
        return store, session
    os.waitpid(pid, 0)
    await session.append(user_message("after"))
    stored_texts = [message.text for message in await session.messages()]
    assert stored_texts[-1] == "after" and len(stored_texts) == 22, stored_texts
    await store.close()
    return None, None

parent = os.getpid()
loop = asyncio.new_event_loop()
store, session = loop.run_until_complete(main())
if os.getpid() != parent:
    async def child():
        await asyncio.wait_for(session.append(user_message("from the child")), 10)
        await asyncio.wait_for(store.close(), 10)
    asyncio.new_event_loop().run_until_complete(child())
    os._exit(0)
loop.close()
print("the end")
""",
        path,
    )
    check_database(path)


def test_a_forked_child_closes_an_async_store(path, check_database):
    run_forking_script(
        """
async def main():
    store = await recollect.open_async(path)
    session = await store.session("cli:a")
    await session.append(user_message(1))
    pid = os.fork()
    if pid == 0:
        return store
    for _ in range(1200):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done: break
        await asyncio.sleep(0.05)
    else:
        os.kill(pid, 9); os.waitpid(pid, 0)
        raise SystemExit("the child hangs")
    assert os.waitstatus_to_exitcode(status) == 0
    await session.append(user_message(2))
    await store.close()

parent = os.getpid()
store = asyncio.new_event_loop().run_until_complete(main())
if os.getpid() != parent:
    asyncio.new_event_loop().run_until_complete(store.close())
    os._exit(0)
print("the end")
""",
        path,
    )
    check_database(path)


def test_a_store_in_memory_is_not_shared_with_a_forked_child(path):
    run_forking_script(
        """
store = recollect.open(":memory:")
session = store.session("cli:a")
pid = os.fork()
if pid == 0:
    try: session.append(user_message(1))
    except StoreClosed as error: os._exit(0 if "fork" in str(error) else 2)
    os._exit(1)
wait_for(pid)
session.append(user_message(1))
assert texts(session) == ["1"]
print("the end")
""",
        path,
    )


def test_many_threads_use_one_store(path, check_database):
    import threading

    with recollect.open(path) as store:
        session = store.session("cli:shared")
        errors = []

        def work(name: int) -> None:
            try:
                for number in range(25):
                    session.append({"role": "user", "content": f"{name} {number}"})
                    session.messages(last=3)
                    store.list_sessions(5)
            except BaseException as error:  # noqa: BLE001  asserted below
                errors.append(error)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        texts = [message.text for message in session.messages()]
        assert len(texts) == len(set(texts)) == 300
        assert store._engine._file.writer is not None  # pyright: ignore[reportAttributeAccessIssue]
        assert len(store._engine._file._idle) <= 8  # pyright: ignore[reportAttributeAccessIssue]
    check_database(path)


def test_closing_while_threads_write_keeps_every_acknowledged_message(path, check_database):
    import threading

    store = recollect.open(path)
    acknowledged_appends: list[tuple[int, int]] = []
    errors: list[BaseException] = []

    def work(name: int) -> None:
        session = store.session(f"cli:{name}")
        try:
            for number in range(1_000_000):
                session.append({"role": "user", "content": str(number)})
                acknowledged_appends.append((name, number))
        except recollect.RecollectError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    while len(acknowledged_appends) < 40:
        threads[0].join(0.01)
    store.close()
    for thread in threads:
        thread.join(60)
    assert {type(error) for error in errors} == {recollect.StoreClosed}
    with recollect.open(path) as store:
        for name in range(8):
            texts = [message.text for message in store.session(f"cli:{name}").messages()]
            assert texts == [str(number) for who, number in acknowledged_appends if who == name]
    print(
        f"closed while 8 threads wrote: {len(acknowledged_appends)} messages acknowledged, none lost, no other stored"
    )
    check_database(path)
