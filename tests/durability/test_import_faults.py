"""Imports on a failing and on a full disk: nothing is half-written, and the same command continues."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys

import pytest
from mounts import disk_of

import recollect

PROGRAM = os.path.join(os.path.dirname(__file__), "faulty_import.py")


def write_transcripts(folder, count, lines, size):
    """Write transcripts of Claude Code with texts that compression does not shorten."""
    folder.mkdir()
    generator = random.Random(7)
    for number in range(count):
        session = f"{number:08}-0000-4000-8000-000000000000"
        items = [
            {
                "type": "user", "uuid": f"{number}-{line}", "parentUuid": f"{number}-{line - 1}" if line else None,
                "sessionId": session, "isSidechain": False, "cwd": "/w", "timestamp": "2026-01-01T00:00:00.000Z",
                "message": {"role": "user", "content": f"{line} {generator.randbytes(size).hex()}"},
            }
            for line in range(lines)
        ]  # fmt: skip
        (folder / f"{session}.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in items))


@pytest.mark.skipif(not shutil.which("fiu-run"), reason="needs libfiu (Debian: fiu-utils)")
@pytest.mark.parametrize(("percent", "seed", "calls"), [(1, 1, "all"), (5, 2, "all"), (20, 3, "writes")])
def test_imports_on_a_faulty_disk(path, tmp_path, percent, seed, calls, check_database):
    write_transcripts(tmp_path / "transcripts", 8, 300, 2_000)  # each is written in several transactions
    process = subprocess.run(
        ["fiu-run", "-x", sys.executable, PROGRAM, path, str(percent), str(seed), str(tmp_path / "transcripts"), calls],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-3000:]
    report = json.loads(process.stdout)
    print(f"{percent}% of calls fail ({calls}): {report}")
    assert sum(report["errors"].values()) > 0
    check_database(path)


def test_an_import_on_a_full_disk_continues_with_the_same_command(tmp_path):
    write_transcripts(tmp_path / "transcripts", 4, 300, 2_000)
    files = sorted((tmp_path / "transcripts").iterdir())

    def run(folder, *arguments):
        return subprocess.run(
            [sys.executable, "-m", "recollect", "--db", str(folder / "a.db"), *arguments],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    with disk_of(tmp_path / "small", "8m") as folder:
        with recollect.open(folder / "a.db"):
            pass
        process = run(folder, "import", str(tmp_path / "transcripts"))
        assert process.returncode != 0
        assert "is full" in process.stderr
        assert "Free some space" in process.stderr
        assert "The same command continues the import." in process.stderr
        for name in os.listdir(folder):
            if not name.endswith(("-shm", "-live")):
                shutil.copyfile(folder / name, tmp_path / name)  # to a larger disk
        assert run(folder, "db", "check").returncode == 0
    process = run(tmp_path, "import", str(tmp_path / "transcripts"))
    assert process.returncode == 0, process.stderr
    with recollect.open(tmp_path / "a.db") as store:
        assert [len(session.messages()) for session in store.list_sessions()] == [300] * len(files)
        assert store.maintenance.check().problems == ()
