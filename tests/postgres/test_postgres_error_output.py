"""The output of a program while its server is unreachable: one error of Recollect, and no output of the driver."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys

import pytest
from loopback_proxy import LoopbackProxy

import recollect

# A program without logging: its connection is cut, and the server is unreachable afterwards.
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


def run_without_server(postgres, logging):
    """Run the program, disconnect the server, and return stdout and stderr."""
    proxy = LoopbackProxy(int(postgres.rpartition(":")[2].partition("/")[0]))
    url = postgres.replace(postgres.rpartition(":")[2].partition("/")[0], str(proxy.port))
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(logging=logging), url],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    proxy.close()
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", proxy.port), 1).close()  # a pending accept() takes one more
    proxy.cut()
    return process.communicate("go\n", timeout=120)


def test_only_the_error_of_recollect_is_printed(postgres):
    stdout, stderr = run_without_server(postgres, "")
    assert "cannot be reached" in stdout or "cannot be used" in stdout, stdout
    assert stderr == ""


def test_a_program_with_logging_gets_the_warnings_of_the_pool(postgres):
    _, stderr = run_without_server(postgres, "import logging; logging.basicConfig()")
    assert "psycopg.pool" in stderr


def test_backup_on_postgresql_names_pg_dump(postgres, tmp_path):
    with recollect.open(postgres) as store, pytest.raises(recollect.errors.NotSupported, match="pg_dump"):
        store.maintenance.backup(tmp_path / "copy.db")
