"""Calls that fail at random, by libfiu, of the disk and of the network: no error but ours, and nothing lost or doubled."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time

import psycopg
import pytest

HERE = os.path.dirname(__file__)
FAULTY, NETWORK = os.path.join(HERE, "faulty.py"), os.path.join(HERE, "faulty_network.py")
FEWEST = 10  # it takes about 5 where none is lost
LIMIT = 30.0
CONNECTIONS = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()"
pytestmark = pytest.mark.skipif(not shutil.which("fiu-run"), reason="needs libfiu (Debian: fiu-utils)")


def run(path: str, percent: int, seed: int, writes: int, program: str = FAULTY) -> dict:
    done = subprocess.run(
        ["fiu-run", "-x", sys.executable, program, path, str(percent), str(seed), str(writes)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    print(f"{percent}% of calls fail: {found}")
    return found


@pytest.mark.parametrize("percent", [1, 5])
def test_some_calls_fail(path, percent, sound):
    found = run(path, percent, seed=1, writes=240)
    assert sum(found["errors met"].values()) > 0
    sound(path)


ONE_READ = """
import asyncio, ctypes, errno, sys
import recollect

fiu = ctypes.CDLL("libfiu.so.0")
fiu.fiu_init(0)
ONCE = 1

def fail(times):
    for name in (b"posix/io/rw/pread", b"posix/io/rw/pread64"):
        fiu.fiu_enable(name, 1, ctypes.c_void_p(errno.EIO), ONCE if times == 1 else 0)

def heal():
    for name in (b"posix/io/rw/pread", b"posix/io/rw/pread64"):
        fiu.fiu_disable(name)

path = sys.argv[1]
with recollect.open(path) as store:
    store.session("a").append([{"role": "user", "content": str(n) * 9000} for n in range(40)])

with recollect.open(path) as store:
    fail(1)
    assert len(store.session("a", create=False).messages()) == 40
    fail(1)
    store.session("a").append({"role": "user", "content": "more"})

async def together():
    async with await recollect.open_async(path) as store:
        talks = [await store.session(name) for name in ("a", "b", "c")]
        fail(1)
        await asyncio.gather(*(talk.append({"role": "user", "content": "again"}) for talk in talks))

asyncio.run(together())
heal()
with recollect.open(path) as store:
    fail(9)  # from now on all of them
    try:
        store.session("a", create=False).messages()
    except (recollect.Corrupted, recollect.StoreUnavailable):
        print("said")
    heal()
    assert len(store.session("a").messages()) == 42
    assert store.check().sound
"""


def test_one_read_that_fails_is_no_damage(path):
    """SQLite calls a page that the disk failed to read damage; it is read again before anyone is told so."""
    done = subprocess.run(
        ["fiu-run", "-x", sys.executable, "-c", ONE_READ, path],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "said\n"), done.stderr[-3000:]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("percent", [1, 2, 3, 4, 5])
def test_for_a_long_time(path, percent, seed, sound):
    run(path, percent, seed, 4_000)
    sound(path)


def broken(url: str, percent: int, seed: int, writes: int) -> None:
    """Write over a network that fails, and see that connections were lost by it."""
    with psycopg.connect(url, autocommit=True) as server:
        before = server.execute(CONNECTIONS).fetchone()[0]
        run(url, percent, seed, writes, NETWORK)
        until = time.monotonic() + LIMIT
        while (made := server.execute(CONNECTIONS).fetchone()[0] - before) <= FEWEST:
            assert time.monotonic() < until, f"only {made} connections were made"
            time.sleep(0.1)  # the server counts those that ended a little later
    print(f"{made} connections for it")


@pytest.mark.parametrize("percent", [2, 5])
def test_some_calls_of_the_network_fail(postgres, percent):
    broken(postgres, percent, 1, 300)


@pytest.mark.long
@pytest.mark.parametrize("percent", [1, 2, 3, 4, 5])
def test_the_network_fails_for_a_long_time(postgres, percent):
    broken(postgres, percent, 2, 4_000)
