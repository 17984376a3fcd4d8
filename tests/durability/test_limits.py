"""Limits of a process: the number of open files (RLIMIT_NOFILE) and the size of a file (RLIMIT_FSIZE)."""

from __future__ import annotations

import subprocess
import sys

import pytest

import recollect

pytest.importorskip("resource", reason="needs POSIX resource limits")

TOO_MANY = """
import os, resource, sys
import recollect.storage.messages
path, when = sys.argv[1:]
store = recollect.open(path)
store.session("cli:a").append({"role": "user", "content": "kept"})
store.close()
if when == "reading":
    store = recollect.open(path)  # the first read opens a connection, and the next ones would use it again
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
descriptors = []
try:
    while True:
        descriptors.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for _ in range(when == "opening its WAL"):
    os.close(descriptors.pop())
try:
    if when == "reading":
        list(store.session("cli:a", create=False).messages())
    else:
        recollect.open(path if when != "a new file" else path + ".new")
except recollect.StoreUnavailable as error:
    print(error)
"""
TOO_LARGE = """
import asyncio, resource, sys
import recollect
path, mode = sys.argv[1:]
large = [{"role": "user", "content": "x" * 50_000}]
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))

async def tasks():
    async with recollect.open_async(path) as store:
        sessions = [await store.session(f"cli:{number}") for number in range(4)]
        for _ in range(100):
            await asyncio.gather(*(session.append(large) for session in sessions))

try:
    if mode == "tasks":
        asyncio.run(tasks())
    store = recollect.open(path)
    for _ in range(100):
        store.session("cli:a").append(large)
except recollect.StoreUnavailable as error:
    print(error)
"""


def run_script(code: str, *arguments: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.parametrize("when", ["opening", "opening its WAL", "a new file", "reading"])
def test_the_limit_of_open_files_is_named_in_the_error(path, when, check_database):
    output = run_script(TOO_MANY, path, when)
    assert "has reached its limit of open files" in output
    assert "ulimit -n" in output
    assert "folder" not in output
    check_database(path)


@pytest.mark.parametrize("mode", ["threads", "tasks"])
def test_the_file_size_limit_is_named_in_the_error(path, mode, check_database):
    recollect.open(path).close()
    output = run_script(TOO_LARGE, path, mode)
    assert "the file has reached the size limit of this process or of the file system" in output
    assert "disk" not in output
    with recollect.open(path) as store:
        assert any(session.messages() for session in store.list_sessions())
    check_database(path)
