"""Nothing that was acknowledged is lost when the power goes, at any moment; power.py has the disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

POWER = os.path.join(os.path.dirname(__file__), "power.py")
WORK = ("append", "group", "compaction", "erasure", "backup", "migration")
CUTS, LONG_CUTS = 120, 2_000
ERASURE_CUTS = 250  # a wiper that writes pages in place left a wrong checksum in 1 of 200 cuts


def cut(work: str, cuts: int, seed: int, level: str = "full") -> dict:
    done = subprocess.run(
        [sys.executable, POWER, work, str(cuts), str(seed), level], capture_output=True, text=True, timeout=900,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    print(f"{work}, synchronous={level}: {found}")
    return found


@pytest.mark.parametrize("work", WORK)
def test_nothing_is_lost(work):
    cuts = ERASURE_CUTS if work == "erasure" else CUTS
    check(cut(work, cuts, seed=7), cuts)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("work", WORK)
def test_nothing_is_lost_in_thousands_of_cuts(work, seed):
    check(cut(work, LONG_CUTS, seed), LONG_CUTS)


def check(found: dict, cuts: int) -> None:
    assert found["cuts"] == cuts
    assert found["acknowledged"] > 0
    assert (found["lost"], found["doubled"], found["corrupt"]) == (0, 0, 0), found["wrong"]


@pytest.mark.parametrize("work", ["append", "group"])
def test_the_same_disk_does_lose_what_is_not_synced(work):
    """Otherwise the tests above would prove nothing."""
    found = cut(work, CUTS, seed=7, level="normal")
    assert found["lost"] > 0
    assert found["corrupt"] == 0
