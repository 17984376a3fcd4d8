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


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("percent", [1, 2, 3, 4, 5])
def test_for_a_long_time(path, percent, seed, sound):
    run(path, percent, seed, 4_000)
    sound(path)
