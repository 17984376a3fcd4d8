"""Keyed records shared by several processes: no update is lost, also if a process is killed."""

from __future__ import annotations

import subprocess
import sys

import pytest

import recollect

# Adds 1 to two numbers by comparing and swapping, in several threads, and prints a line for each acknowledged addition.
INCREMENTS = """
import sys, threading
import recollect

location, threads, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
store = recollect.open(location)


def increment(records):
    while True:
        record = records.get("counter", "n")
        number, revision = (0, 0) if record is None else (record.value, record.revision)
        try:
            records.put("counter", "n", number + 1, expected=revision)
        except recollect.StaleRecord:
            continue
        print("added", flush=True)
        return


def work():
    for number in range(count):
        increment(store.records if number % 2 else store.session("a", create=False).records)


workers = [threading.Thread(target=work) for _ in range(threads)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
"""


@pytest.fixture(params=["sqlite", "postgres"])
def location(request, tmp_path):
    """Return a database with a session, a file or on the server."""
    location = str(tmp_path / "sessions.db") if request.param == "sqlite" else request.getfixturevalue("postgres")
    with recollect.open(location) as store:
        store.session("a")
    return location


def start(location, threads, count):
    command = [sys.executable, "-c", INCREMENTS, location, str(threads), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def totals(location):
    """Return the numbers, after checking that each revision is one addition."""
    with recollect.open(location) as store:
        records = [store.records.get("counter", "n"), store.session("a").records.get("counter", "n")]
        assert store.maintenance.check().problems == ()
    assert [record.value for record in records] == [record.revision for record in records]
    return [record.value for record in records]


def test_two_processes_with_ten_threads_each_lose_no_update(location):
    processes = [start(location, 10, 4) for _ in range(2)]
    for process in processes:
        output, errors = process.communicate(timeout=300)
        assert (process.returncode, output.count("added")) == (0, 40), errors
    assert totals(location) == [40, 40]


def test_a_killed_process_loses_no_acknowledged_update(location):
    survivor, victim = start(location, 2, 10), start(location, 2, 1_000)
    lines = [victim.stdout.readline() for _ in range(10)]
    victim.kill()
    additions = len([*lines, *victim.stdout.readlines()])
    victim.communicate()
    output, errors = survivor.communicate(timeout=300)
    assert (survivor.returncode, output.count("added")) == (0, 20), errors
    # A write that was committed, and not acknowledged before the kill, counts too: at most one of each thread.
    assert additions + 20 <= sum(totals(location)) <= additions + 20 + 2
