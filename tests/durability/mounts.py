"""File systems that a test makes for itself, where it may."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

MAY_MOUNT = sys.platform.startswith("linux") and os.geteuid() == 0 and shutil.which("mount") is not None


def mounted(*command: str) -> bool:
    return MAY_MOUNT and subprocess.run(["mount", *command], capture_output=True, check=False).returncode == 0


def unmount(folder: str | Path) -> None:
    subprocess.run(["umount", "-l", str(folder)], check=True)


@contextlib.contextmanager
def disk_of(folder: Path, size: str) -> Iterator[Path]:
    """Make a new folder that is a disk of its own, of a size such as 3m."""
    folder.mkdir()
    if not mounted("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)):
        pytest.skip("a small disk can not be mounted here: only root can, and not everywhere")
    try:
        yield folder
    finally:
        unmount(folder)
