"""Disk and network calls that fail at random (libfiu): only RecollectErrors, and no message is lost or duplicated."""

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
MIN_CONNECTIONS = 10  # about 5 are opened if none is lost
TIMEOUT = 30.0  # seconds until the server has counted the connections
CONNECTIONS = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()"
pytestmark = pytest.mark.skipif(not shutil.which("fiu-run"), reason="needs libfiu (Debian: fiu-utils)")


def run(path: str, percent: int, seed: int, writes: int, program: str = FAULTY) -> dict:
    process = subprocess.run(
        ["fiu-run", "-x", sys.executable, program, path, str(percent), str(seed), str(writes)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-3000:]
    report = json.loads(process.stdout)
    print(f"{percent}% of calls fail: {report}")
    return report


@pytest.mark.parametrize("percent", [1, 5])
def test_appends_succeed_on_a_faulty_disk(path, percent, check_database):
    report = run(path, percent, seed=1, writes=240)
    assert sum(report["errors"].values()) > 0
    check_database(path)


FAIL_ONE_READ = """
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

async def append_concurrently():
    async with await recollect.open_async(path) as store:
        sessions = [await store.session(name) for name in ("a", "b", "c")]
        fail(1)
        await asyncio.gather(*(session.append({"role": "user", "content": "again"}) for session in sessions))

asyncio.run(append_concurrently())
heal()
with recollect.open(path) as store:
    fail(9)  # every read fails from now on
    try:
        store.session("a", create=False).messages()
    except (recollect.errors.Corrupted, recollect.StoreUnavailable):
        print("raised")
    heal()
    assert len(store.session("a").messages()) == 42
    assert store.maintenance.check().ok
"""


def test_a_single_failed_read_is_not_reported_as_damage(path):
    """SQLite reports a failed read of a page as damage; the engine reads it again before it raises Corrupted."""
    process = subprocess.run(
        ["fiu-run", "-x", sys.executable, "-c", FAIL_ONE_READ, path],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (process.returncode, process.stdout) == (0, "raised\n"), process.stderr[-3000:]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("percent", [1, 2, 3, 4, 5])
def test_thousands_of_appends_succeed_on_a_faulty_disk(path, percent, seed, check_database):
    run(path, percent, seed, 4_000)
    check_database(path)


def write_over_faulty_network(url: str, percent: int, seed: int, writes: int) -> None:
    """Write over a faulty network, and check that connections were lost and replaced."""
    with psycopg.connect(url, autocommit=True) as server:
        before = server.execute(CONNECTIONS).fetchone()[0]
        run(url, percent, seed, writes, NETWORK)
        deadline = time.monotonic() + TIMEOUT
        while (new_connections := server.execute(CONNECTIONS).fetchone()[0] - before) <= MIN_CONNECTIONS:
            assert time.monotonic() < deadline, f"only {new_connections} connections were opened"
            time.sleep(0.1)  # the server counts ended connections with a delay
    print(f"{new_connections} connections were opened")


@pytest.mark.parametrize("percent", [2, 5])
def test_writes_happen_once_over_a_faulty_network(postgres, percent):
    write_over_faulty_network(postgres, percent, 1, 300)


@pytest.mark.long
@pytest.mark.parametrize("percent", [1, 2, 3, 4, 5])
def test_thousands_of_writes_happen_once_over_a_faulty_network(postgres, percent):
    write_over_faulty_network(postgres, percent, 2, 4_000)
