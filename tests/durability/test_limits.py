"""What the system lets a process have: as many files as it may open, and files as large as they may be."""

from __future__ import annotations

import subprocess
import sys

import pytest

import recollect

pytest.importorskip("resource", reason="limits of a process are set as POSIX has them")

TOO_MANY = """
import os, resource, sys
import recollect, recollect.ops.messages
path, when = sys.argv[1:]
store = recollect.open(path)
store.session("cli:a").append({"role": "user", "content": "kept"})
if when != "reading":
    store.close()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for _ in range(when == "opening its log"):
    os.close(taken.pop())
try:
    if when == "reading":
        list(store.session("cli:a", create=False).messages())
    else:
        recollect.open(path if when != "a new one" else path + ".new")
except recollect.StoreUnavailable as error:
    print(error)
"""
TOO_LARGE = """
import asyncio, resource, sys
import recollect
path, how = sys.argv[1:]
large = [{"role": "user", "content": "x" * 50_000}]
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))

async def tasks():
    async with recollect.open_async(path) as store:
        sessions = [await store.session(f"cli:{number}") for number in range(4)]
        for _ in range(100):
            await asyncio.gather(*(session.append(large) for session in sessions))

try:
    if how == "tasks":
        asyncio.run(tasks())
    store = recollect.open(path)
    for _ in range(100):
        store.session("cli:a").append(large)
except recollect.StoreUnavailable as error:
    print(error)
"""


def told(code: str, *arguments: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("when", ["opening", "opening its log", "a new one", "reading"])
def test_too_many_files_are_not_blamed_on_the_folder(path, when, sound):
    words = told(TOO_MANY, path, when)
    assert "as many files open as it may" in words
    assert "ulimit -n" in words
    assert "folder" not in words
    sound(path)


@pytest.mark.parametrize("how", ["threads", "tasks"])
def test_a_file_that_may_not_grow_says_so(path, how, sound):
    recollect.open(path).close()
    words = told(TOO_LARGE, path, how)
    assert "as large as this process or the file system lets a file be" in words
    assert "disk" not in words
    with recollect.open(path) as store:
        assert any(session.messages() for session in store.list_sessions())
    sound(path)
