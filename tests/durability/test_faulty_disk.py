"""Reads, writes and syncs that fail at random, by libfiu: no error but ours, and nothing lost or doubled in the end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

FAULTY = os.path.join(os.path.dirname(__file__), "faulty.py")
pytestmark = pytest.mark.skipif(not shutil.which("fiu-run"), reason="needs libfiu (Debian: fiu-utils)")


def run(path: str, percent: int, seed: int, writes: int) -> dict:
    done = subprocess.run(
        ["fiu-run", "-x", sys.executable, FAULTY, path, str(percent), str(seed), str(writes)],
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
