"""Maintenance next to another process, in many schedules of their file operations: nothing is lost, and the file is intact."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
import sys
import time

import apsw
import pytest
import stepped

import recollect
from recollect.engine.sqlite.connection import connect

SCHEDULES, LONG_SCHEDULES = 300, 10_000
CONTROL_SCHEDULES = 1_000  # at most; about 1 in 40 shows the damage
STOCK_RUNS = 200  # runs next to a stock SQLite, about 30 of each kind of maintenance
PAIRS = tuple(itertools.product(stepped.MAINTENANCE, stepped.INTERFERENCE))
ERASING = ("erase", "prune", "empty_trash")


def user_message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Create a store with sessions to keep and to erase, with rows spread by page splits, and its backup. Return its path."""
    path = str(tmp_path_factory.mktemp("template") / "recollect.db")
    rng = random.Random(1)
    with recollect.open(path) as store:
        names = ["v0", "v1", *(f"o{number}" for number in range(6))]
        for _ in range(12):
            for name in rng.sample(names, len(names)):
                word = f"{stepped.SECRET} " if name.startswith("v") else "plain "
                session = store.session(name, title=word * 3)
                session.append([user_message(word * rng.randint(1, 120)) for _ in range(2)])
        store.session("kept", pinned=True).append(user_message("first"))
        list(store.search("plain"))
        store.maintenance.backup(f"{path}.before")
    with recollect.open(path) as store:
        for number in range(6):  # pages in the WAL, as a crash leaves them
            store.session(f"o{number}").append(user_message("in the WAL " * 1_000))
        for suffix in ("", "-wal"):
            subprocess.run(["cp", path + suffix, f"{path}.crashed{suffix}"], check=True)
    return path


@pytest.fixture
def pair():
    pair = stepped.Pair()
    yield pair
    pair.close()


def copy_template(template: str, folder: str) -> str:
    path = os.path.join(folder, "recollect.db")
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    for suffix in ("", "-wal"):
        shutil.copy(f"{template}.crashed{suffix}", path + suffix)
    shutil.copy(f"{template}.before", f"{path}.before")
    return path


def texts(path: str) -> list[str]:
    with recollect.open(path) as store:
        return [message.text for message in store.session("kept").messages()]


def check(path: str, maintenance: str, acknowledged_texts: list[str]) -> None:
    """Open the store: it is intact, has the acknowledged texts, and no byte of the erased ones."""
    with recollect.open(path) as store:
        assert store.maintenance.check().problems == ()
        for number in range(6 if maintenance != "prune" else 0):
            assert len(store.session(f"o{number}").messages()) == (24 if maintenance == "restore" else 25)
    stored_texts = texts(path)
    if maintenance == "restore":  # writes before the restore are in the copy of the previous file
        kept_files = [name for name in os.listdir(os.path.dirname(path)) if name.endswith(".kept")]
        stored_texts = stored_texts + texts(os.path.join(os.path.dirname(path), kept_files[0]))
        assert set(acknowledged_texts) <= set(stored_texts)
    else:
        assert stored_texts == ["first", *acknowledged_texts]
    if maintenance == "erase":
        assert stepped.secrets_in(path) == {}


def run_schedule(pair: stepped.Pair, template: str, folder: str, seed: int) -> None:
    actions = PAIRS[seed % len(PAIRS)]
    path = copy_template(template, folder)
    first, second = pair.run(path, actions, seed)
    try:
        assert "error" not in first
        assert "error" not in second
        check(path, actions[0], second["texts"])
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, {actions}: {first}, {second}") from error


def test_maintenance_is_safe_in_schedules_of_two_processes(pair, template, tmp_path, long):
    for seed in range(LONG_SCHEDULES if long else SCHEDULES):
        run_schedule(pair, template, str(tmp_path / "run"), seed)


def test_schedules_find_pages_written_without_sqlite(pair, template, tmp_path):
    """Control: the schedules find a known defect, so the test above can fail."""
    for seed in range(CONTROL_SCHEDULES):
        path = copy_template(template, str(tmp_path / "run"))
        pair.run(path, ("write_pages_directly", "checkpoint"), seed)
        connection = connect(path, 5.0)
        try:
            is_intact = connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
        except apsw.CorruptError:
            is_intact = False
        finally:
            connection.close()
        if not is_intact:
            return
    pytest.fail("no schedule showed the damage")


STOCK_SQLITE = """
import random, sqlite3, sys, time
rng = random.Random(int(sys.argv[2]))
connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
print("ready", flush=True)
for _ in range(12):
    time.sleep(rng.random() * 0.01)
    match rng.randrange(4):
        case 0: connection.execute("VACUUM")
        case 1: connection.execute("UPDATE sessions SET color = color WHERE id = 'kept'")
        case _:
            mode = rng.choice(("PASSIVE", "FULL", "RESTART", "TRUNCATE"))
            connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
connection.close()
"""


@pytest.mark.all
def test_maintenance_is_safe_next_to_a_stock_sqlite(template, tmp_path):
    """The SQLite of another program checkpoints, vacuums and writes at random times during maintenance."""
    for seed in range(STOCK_RUNS):
        maintenance, rng = stepped.MAINTENANCE[seed % len(stepped.MAINTENANCE)], random.Random(seed)
        path = copy_template(template, str(tmp_path / "run"))
        with subprocess.Popen([sys.executable, "-c", STOCK_SQLITE, path, str(seed)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(rng.random() * 0.02)
            getattr(stepped.Actions(path, seed), maintenance)()
            with recollect.open(path) as store:
                store.session("kept").append(user_message("acknowledged"))
            assert process.wait(60) == 0
        with recollect.open(path) as store:  # a stock SQLite checkpoints pages without a checksum; a rewrite adds it
            assert [problem for problem in store.maintenance.check().problems if problem.kind != "checksum"] == []
            store.maintenance.optimize()
        check(path, maintenance, ["acknowledged"])
