"""Maintenance beside another process, at every schedule of their file operations: nothing is lost, the file is sound."""

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
STOCK_RUNS = 200
PAIRS = tuple(itertools.product(stepped.SIDES, stepped.OTHERS))
ERASING = ("erase", "prune", "empty_trash")


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A store with sessions that are kept and sessions that are erased, its rows spread by page splits, and a backup."""
    path = str(tmp_path_factory.mktemp("template") / "recollect.db")
    dice = random.Random(1)
    with recollect.open(path) as store:
        names = ["v0", "v1", *(f"o{number}" for number in range(6))]
        for _ in range(12):
            for name in dice.sample(names, len(names)):
                word = f"{stepped.SECRET} " if name.startswith("v") else "plain "
                session = store.session(name, title=word * 3)
                session.append([said(word * dice.randint(1, 120)) for _ in range(2)])
        store.session("kept", pinned=True).append(said("first"))
        list(store.search("plain"))
        store.backup(f"{path}.before")
    with recollect.open(path) as store:
        for number in range(6):  # what a checkpoint has to move, as a crash leaves it
            store.session(f"o{number}").append(said("in the log " * 100))
        for ending in ("", "-wal"):
            subprocess.run(["cp", path + ending, f"{path}.crashed{ending}"], check=True)
    return path


@pytest.fixture
def pair():
    pair = stepped.Pair()
    yield pair
    pair.close()


def fresh(template: str, folder: str) -> str:
    path = os.path.join(folder, "recollect.db")
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    for ending in ("", "-wal"):
        shutil.copy(f"{template}.crashed{ending}", path + ending)
    shutil.copy(f"{template}.before", f"{path}.before")
    return path


def texts(path: str) -> list[str]:
    with recollect.open(path) as store:
        return [message.text for message in store.session("kept").messages()]


def check(path: str, side: str, acknowledged: list[str]) -> None:
    """Open the store alone: it is sound, has what was acknowledged, and nothing of what was erased."""
    with recollect.open(path) as store:
        assert store.check().problems == ()
        for number in range(6 if side != "prune" else 0):
            assert len(store.session(f"o{number}").messages()) == (24 if side == "restore" else 25)
    have = texts(path)
    if side == "restore":  # what was written before it is in the copy that it kept
        kept = [name for name in os.listdir(os.path.dirname(path)) if name.endswith(".kept")]
        have = have + texts(os.path.join(os.path.dirname(path), kept[0]))
        assert set(acknowledged) <= set(have)
    else:
        assert have == ["first", *acknowledged]
    if side == "erase":
        assert stepped.secrets_in(path) == {}


def run(pair: stepped.Pair, template: str, folder: str, seed: int) -> None:
    actions = PAIRS[seed % len(PAIRS)]
    path = fresh(template, folder)
    first, second = pair.run(path, actions, seed)
    try:
        assert "error" not in first
        assert "error" not in second
        check(path, actions[0], second["texts"])
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, {actions}: {first}, {second}") from error


def test_schedules_of_two_processes(pair, template, tmp_path, long):
    for seed in range(LONG_SCHEDULES if long else SCHEDULES):
        run(pair, template, str(tmp_path / "run"), seed)


def test_pages_that_are_written_around_sqlite_are_found(pair, template, tmp_path):
    """Otherwise the schedules would prove nothing."""
    for seed in range(SCHEDULES):
        path = fresh(template, str(tmp_path / "run"))
        pair.run(path, ("careless", "checkpoint"), seed)
        connection = connect(path, 5.0)
        try:
            sound = connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
        except apsw.CorruptError:
            sound = False
        finally:
            connection.close()
        if not sound:
            return
    pytest.fail("no schedule showed the damage")


STOCK = """
import random, sqlite3, sys, time
dice = random.Random(int(sys.argv[2]))
connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
print("ready", flush=True)
for _ in range(12):
    time.sleep(dice.random() * 0.01)
    match dice.randrange(4):
        case 0: connection.execute("VACUUM")
        case 1: connection.execute("UPDATE sessions SET color = color WHERE id = 'kept'")
        case _:
            mode = dice.choice(("PASSIVE", "FULL", "RESTART", "TRUNCATE"))
            connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
connection.close()
"""


@pytest.mark.all
def test_beside_a_stock_sqlite(template, tmp_path):
    """Another program's SQLite checkpoints, vacuums and writes at random moments of every kind of maintenance."""
    for seed in range(STOCK_RUNS):
        side, dice = stepped.SIDES[seed % len(stepped.SIDES)], random.Random(seed)
        path = fresh(template, str(tmp_path / "run"))
        with subprocess.Popen([sys.executable, "-c", STOCK, path, str(seed)], stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"ready\n"
            time.sleep(dice.random() * 0.02)
            getattr(stepped.Actions(path, seed), side)()
            with recollect.open(path) as store:
                store.session("kept").append(said("acknowledged"))
            assert other.wait(60) == 0
        with recollect.open(path) as store:  # a stock SQLite moves pages without a checksum; a rewrite gives them one
            assert [problem for problem in store.check().problems if problem.kind != "checksum"] == []
            store.optimize()
        check(path, side, ["acknowledged"])
