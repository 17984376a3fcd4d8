"""Many processes and threads on one file, and processes that were forked from one another."""

from __future__ import annotations

import subprocess
import sys

import pytest

import recollect

PROCESSES, THREADS, COUNT = 6, 3, 30


def test_a_crowd_on_one_file(path, spawn, sound):
    recollect.open(path).close()
    crowd = [spawn("crowd", path, number, THREADS, COUNT) for number in range(PROCESSES)]
    for child in crowd:
        assert child.stdout.readline() == b"ready\n"
    for child in crowd:
        child.stdin.write(b"go\n")
        child.stdin.flush()
    complaints = [child.communicate(timeout=120)[1].decode() for child in crowd]
    assert complaints == [""] * PROCESSES
    with recollect.open(path) as store:
        for process in range(PROCESSES):
            for thread in range(THREADS):
                own = [message.text for message in store.get_session(f"own:{process}:{thread}").messages()]
                assert own == [str(number) for number in range(COUNT)]
        check_shared(store.get_session("cli:shared").messages())
    sound(path)


def check_shared(messages) -> None:
    """Nothing is lost or doubled, each writer's messages are in its order, and no pair is torn apart."""
    assert len(messages) == PROCESSES * THREADS * COUNT * 2
    assert [message.position for message in messages] == list(range(1, len(messages) + 1))
    by_writer: dict[str, list[str]] = {}
    for first, second in zip(messages[::2], messages[1::2], strict=True):
        assert second.text == first.text + "+"
        writer, number = first.text.split()
        by_writer.setdefault(writer, []).append(number)
    assert len(by_writer) == PROCESSES * THREADS
    assert all(numbers == [str(number) for number in range(COUNT)] for numbers in by_writer.values())


def forked(code: str, path: str) -> None:
    """Run a story with fork() in a process of its own, away from the test runner's threads."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRELUDE + code, path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.endswith("the end\n")


PRELUDE = """
import asyncio, gc, multiprocessing, os, sys, threading, time
import recollect
from recollect.errors import StoreClosed, SessionBusy
path = sys.argv[1]
def said(text): return {"role": "user", "content": str(text)}
def texts(session): return [message.text for message in session.messages()]
def ended(pid): assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""

ENDINGS = {
    "os._exit": "os._exit(0)",
    "normally": "sys.exit(0)",
    "closing": "store.close(); sys.exit(0)",
    "collecting": "del store, session; gc.collect(); sys.exit(0)",
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_children_use_the_parents_store_while_it_goes_on(path, sound, ending):
    forked(
        f"""
store = recollect.open(path)
session = store.session("cli:parent")
for number in range(20): session.append(said(number))
session.messages()
children = []
for child in range(4):
    pid = os.fork()
    if pid == 0:
        own = store.session(f"cli:child{{child}}")
        for number in range(20): own.append(said(number))
        session.append(said(f"from {{child}}"))
        assert len(texts(session)) >= 21
        {ending}
    children.append(pid)
    for number in range(10): session.append(said(f"more {{child}} {{number}}"))
for pid in children: ended(pid)
found = texts(store.session("cli:parent"))
assert len(found) == 20 + 40 + 4, len(found)
assert [text for text in found if text.startswith("more")] == [f"more {{c}} {{n}}" for c in range(4) for n in range(10)]
for child in range(4):
    assert texts(store.session(f"cli:child{{child}}")) == [str(number) for number in range(20)]
session.append(said("last"))
store.close()
with recollect.open(path) as store: assert texts(store.session("cli:parent"))[-1] == "last"
print("the end")
""",
        path,
    )
    sound(path)


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_child_that_does_nothing_harms_nothing(path, sound, ending):
    """It must neither fold the parent's log nor drop its locks: others on the file would then write over it."""
    forked(
        f"""
import subprocess
other = "import sys, recollect; s = recollect.open(sys.argv[1]); [s.session('cli:other').append({{'role': 'user', 'content': 'o'}}) for _ in range(5)]; s.close()"
store = recollect.open(path)
session = store.session("cli:parent")
for number in range(50): session.append(said(number))
session.messages()
for child in range(3):
    for again in range(2):  # twice without any use of the store in between
        pid = os.fork()
        if pid == 0:
            {ending}
        ended(pid)
    assert len(texts(session)) == 50 + child
    subprocess.run([sys.executable, "-c", other, path], check=True)
    session.append(said("on"))
    assert len(texts(store.session("cli:other"))) == 5 * (child + 1)
assert len(texts(session)) == 53
print("the end")
""",
        path,
    )
    sound(path)


def test_a_fork_while_another_thread_writes(path, sound):
    """The child's copy of the lock is held by a thread that is not there."""
    forked(
        """
store = recollect.open(path, timeout=60)
session = store.session("cli:parent")
stop = threading.Event()
count = [0]
def write():
    while not stop.is_set():
        session.append(said(count[0])); count[0] += 1
writer = threading.Thread(target=write, daemon=True); writer.start()
children = []
for child in range(8):
    time.sleep(0.01)
    pid = os.fork()
    if pid == 0:
        own = store.session(f"cli:child{child}")
        for number in range(5): own.append(said(number))
        assert texts(own) == ["0", "1", "2", "3", "4"]
        os._exit(0)
    children.append(pid)
for pid in children: ended(pid)
stop.set(); writer.join()
assert texts(session) == [str(number) for number in range(count[0])]
for child in range(8): assert len(texts(store.session(f"cli:child{child}"))) == 5
print("the end")
""",
        path,
    )
    sound(path)


@pytest.mark.parametrize("module", ["recollect.ops.appends", "recollect.formats.registry", "recollect.formats.openai"])
def test_a_fork_while_another_thread_loads_what_it_needs(path, sound, module):
    """The child's copy of the lock of a module is held by a thread that is not there."""
    forked(
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
writer = threading.Thread(target=lambda: session.append(said(1))); writer.start()
loading.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    store.session("cli:child").append(said(1))
    os._exit(0)
ended(pid)
writer.join()
assert texts(session) == texts(store.session("cli:child")) == ["1"]
print("the end")
""",
        path,
    )
    sound(path)


@pytest.mark.parametrize("last", ["store.close()", "os._exit(0)", "sys.exit(0)", "del store, session; gc.collect()"])
def test_a_child_goes_on_after_its_parent_has_left(path, sound, last):
    """A server that opens its store and then goes into the background, or that forks its workers and closes."""
    code = f"""
store = recollect.open(path)
session = store.session("cli:a")
for number in range(3): session.append(said(f"parent {{number}}"))
session.messages()
ready, started = os.pipe()
left, leave = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(leave)
    for number in range(3): session.append(said(f"child {{number}}"))
    os.write(started, b"x")
    os.read(left, 1)  # returns when the parent is gone, or says that it has closed
    for number in range(3, 6): session.append(said(f"child {{number}}"))
    found = texts(session)
    assert found == [f"{{who}} {{n}}" for who, count in (("parent", 3), ("child", 6)) for n in range(count)], found
    print("the end", flush=True)
    os._exit(0)
os.read(ready, 1)
{last}
os.write(leave, b"x")
ended(pid)
"""
    forked(code, path)
    with recollect.open(path) as store:
        found = [message.text for message in store.session("cli:a").messages()]
    assert found == [f"{who} {n}" for who, count in (("parent", 3), ("child", 6)) for n in range(count)]
    sound(path)


def test_workers_outlive_the_one_that_forked_them(path, sound):
    forked(
        """
store = recollect.open(path)
store.session("cli:a").append(said("first"))
workers = []
for worker in range(3):
    pid = os.fork()
    if pid == 0:
        own = store.session(f"cli:worker{worker}")
        for number in range(30):
            own.append(said(number)); time.sleep(0.01)
        os._exit(0)
    workers.append(pid)
time.sleep(0.1)
store.close()
for pid in workers: ended(pid)
with recollect.open(path) as store:
    for worker in range(3):
        assert texts(store.session(f"cli:worker{worker}")) == [str(number) for number in range(30)]
print("the end")
""",
        path,
    )
    sound(path)


def test_multiprocessing_with_fork(path, sound):
    forked(
        """
store = recollect.open(path)
session = store.session("cli:shared")
def work(number):
    for step in range(10): session.append(said(f"{number} {step}"))
    return os.getpid()
pool = multiprocessing.get_context("fork").Pool(4)
result = pool.map_async(work, range(8))
for step in range(20): session.append(said(f"parent {step}"))
assert os.getpid() not in result.get(30)
pool.close(); pool.join()
found = texts(session)
assert len(found) == len(set(found)) == 100
for writer in [*map(str, range(8)), "parent"]:
    steps = [int(text.split()[1]) for text in found if text.split()[0] == writer]
    assert steps == sorted(steps)
print("the end")
""",
        path,
    )
    sound(path)


def test_a_grandchild_opens_its_own_too(path, sound):
    forked(
        """
store = recollect.open(path)
session = store.session("cli:a"); session.append(said(0))
pid = os.fork()
if pid == 0:
    session.append(said(1))
    inner = os.fork()
    if inner == 0:
        session.append(said(2)); os._exit(0)
    ended(inner)
    session.append(said(3)); os._exit(0)
ended(pid)
session.append(said(4))
assert texts(session) == ["0", "1", "2", "3", "4"]
print("the end")
""",
        path,
    )
    sound(path)


def test_a_turn_of_the_parent_is_the_parents(path):
    forked(
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
    ended(pid)
    turn.add({"role": "assistant", "content": "still"})
assert [turn.status for turn in session.turns()] == ["completed"]
print("the end")
""",
        path,
    )


def test_the_child_of_an_async_store(path, sound):
    forked(
        """
async def main():
    store = await recollect.open_async(path)
    session = await store.session("cli:a")
    await asyncio.gather(*(session.append(said(number)) for number in range(20)))
    await session.messages()
    pid = os.fork()
    if pid == 0:
        return store, session
    os.waitpid(pid, 0)
    await session.append(said("after"))
    found = [message.text for message in await session.messages()]
    assert found[-1] == "after" and len(found) == 22, found
    await store.close()
    return None, None

parent = os.getpid()
loop = asyncio.new_event_loop()
store, session = loop.run_until_complete(main())
if os.getpid() != parent:
    async def child():
        await asyncio.wait_for(session.append(said("from the child")), 10)
        await asyncio.wait_for(store.close(), 10)
    asyncio.new_event_loop().run_until_complete(child())
    os._exit(0)
loop.close()
print("the end")
""",
        path,
    )
    sound(path)


def test_a_child_that_only_closes_an_async_store(path, sound):
    forked(
        """
async def main():
    store = await recollect.open_async(path)
    session = await store.session("cli:a")
    await session.append(said(1))
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
    await session.append(said(2))
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
    sound(path)


def test_memory_is_not_shared_with_a_child(path):
    forked(
        """
store = recollect.open(":memory:")
session = store.session("cli:a")
pid = os.fork()
if pid == 0:
    try: session.append(said(1))
    except StoreClosed as error: os._exit(0 if "fork" in str(error) else 2)
    os._exit(1)
ended(pid)
session.append(said(1))
assert texts(session) == ["1"]
print("the end")
""",
        path,
    )


def test_many_threads_on_one_store(path, sound):
    import threading

    with recollect.open(path) as store:
        session = store.session("cli:shared")
        trouble = []

        def work(name: int) -> None:
            try:
                for number in range(25):
                    session.append({"role": "user", "content": f"{name} {number}"})
                    session.messages(last=3)
                    store.list_sessions(5)
            except BaseException as error:  # noqa: BLE001  it is shown below
                trouble.append(error)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert trouble == []
        found = [message.text for message in session.messages()]
        assert len(found) == len(set(found)) == 300
        assert store._engine._file.writer is not None
        assert len(store._engine._file._idle) <= 8
    sound(path)


def test_closing_while_threads_write_loses_nothing_acknowledged(path, sound):
    import threading

    store = recollect.open(path)
    acknowledged: list[tuple[int, int]] = []
    ended: list[BaseException] = []

    def work(name: int) -> None:
        session = store.session(f"cli:{name}")
        try:
            for number in range(1_000_000):
                session.append({"role": "user", "content": str(number)})
                acknowledged.append((name, number))
        except recollect.RecollectError as error:
            ended.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    while len(acknowledged) < 40:
        threads[0].join(0.01)
    store.close()
    for thread in threads:
        thread.join(60)
    assert {type(error) for error in ended} == {recollect.StoreClosed}
    with recollect.open(path) as store:
        for name in range(8):
            found = [message.text for message in store.session(f"cli:{name}").messages()]
            assert found == [str(number) for who, number in acknowledged if who == name]
    print(f"closed while 8 threads wrote: {len(acknowledged)} messages acknowledged, none lost, none besides")
    sound(path)
