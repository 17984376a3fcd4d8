"""Acknowledged writes survive a power failure at any point. power.py simulates the disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

POWER = os.path.join(os.path.dirname(__file__), "power.py")
WORK = ("append", "group", "compaction", "erasure", "backup", "migration")
CUTS, LONG_CUTS = 120, 2_000
ERASURE_CUTS = 250  # a page wiper that wrote pages in place left a wrong checksum in 1 of 200 power failures


def run_power_failures(work: str, cuts: int, seed: int, level: str = "full") -> dict:
    process = subprocess.run(
        [sys.executable, POWER, work, str(cuts), str(seed), level], capture_output=True, text=True, timeout=900,
        check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-3000:]
    report = json.loads(process.stdout)
    print(f"{work}, synchronous={level}: {report}")
    return report


@pytest.mark.parametrize("work", WORK)
def test_acknowledged_writes_survive_power_failures(work):
    cuts = ERASURE_CUTS if work == "erasure" else CUTS
    check(run_power_failures(work, cuts, seed=7), cuts)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("work", WORK)
def test_acknowledged_writes_survive_thousands_of_power_failures(work, seed):
    check(run_power_failures(work, LONG_CUTS, seed), LONG_CUTS)


def check(report: dict, cuts: int) -> None:
    assert report["cuts"] == cuts
    assert report["acknowledged"] > 0
    assert (report["losses"], report["duplicates"], report["corrupt"]) == (0, 0, 0), report["problems"]


@pytest.mark.parametrize("work", ["append", "group"])
def test_unsynced_writes_are_lost_with_synchronous_normal(work):
    """Control: the simulated disk does lose unsynced writes, so the tests above can fail."""
    report = run_power_failures(work, CUTS, seed=7, level="normal")
    assert report["losses"] > 0
    assert report["corrupt"] == 0
