"""Small and read-only file systems for tests that run as root on Linux."""

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


def mount(*command: str) -> bool:
    """Run mount and return whether it succeeded."""
    return MAY_MOUNT and subprocess.run(["mount", *command], capture_output=True, check=False).returncode == 0


def unmount(folder: str | Path) -> None:
    subprocess.run(["umount", "-l", str(folder)], check=True)


@contextlib.contextmanager
def disk_of(folder: Path, size: str) -> Iterator[Path]:
    """Create a tmpfs of a size such as 3m for the time of a `with` block, or skip the test if that is not possible."""
    folder.mkdir()
    if not mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)):
        pytest.skip("a tmpfs cannot be mounted here: it needs root, and not every system allows it")
    try:
        yield folder
    finally:
        unmount(folder)
