"""What a person sees while a server is away: our one sentence, and nothing of the driver's own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys

import pytest
from loopback_proxy import LoopbackProxy

import recollect

# A program without any logging of its own, on a connection that is cut and a server that is not there again.
PROGRAM = """
import os, sys, recollect
{logging}
store = recollect.open(sys.argv[1], timeout=3)
session = store.session("a")
print("ready", flush=True)
sys.stdin.readline()
try:
    session.append({{"role": "user", "content": "x"}})
except recollect.StoreUnavailable as error:
    print(error, flush=True)
os._exit(0)
"""


def away(postgres, logging):
    """Run the program, take the server away, and give what it printed and what stood beside it."""
    proxy = LoopbackProxy(int(postgres.rpartition(":")[2].partition("/")[0]))
    url = postgres.replace(postgres.rpartition(":")[2].partition("/")[0], str(proxy.port))
    running = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(logging=logging), url],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert running.stdout.readline() == "ready\n"
    proxy.close()
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", proxy.port), 1).close()  # one who waits to accept takes one more
    proxy.cut()
    return running.communicate("go\n", timeout=120)


def test_nothing_but_our_error_is_printed(postgres):
    printed, beside = away(postgres, "")
    assert "can not be reached" in printed or "can not be used" in printed, printed
    assert beside == ""


def test_a_program_that_logs_gets_the_pools_warnings(postgres):
    _, beside = away(postgres, "import logging; logging.basicConfig()")
    assert "psycopg.pool" in beside


def test_what_is_about_a_file_names_what_to_use(postgres, tmp_path):
    with recollect.open(postgres) as store, pytest.raises(recollect.NotSupported, match="pg_dump"):
        store.backup(tmp_path / "copy.db")
