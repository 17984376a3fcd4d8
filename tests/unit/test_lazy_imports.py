"""The fork hook imports the remaining modules only if another thread could be importing one."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, threading
import recollect
from recollect import storage

store = recollect.open(":memory:")
stop = threading.Event()
{thread}
pid = os.fork()
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0)
stop.set()
print(*("recollect." + name in sys.modules for name in ("storage.transfer", "formats.ai_sdk", "engine.sqlite.search")))
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="there is no fork() on this system")
@pytest.mark.parametrize(
    ("thread", "expected"),
    [("", "False False False"), ("from recollect import formats; formats.FORMATS; threading.Thread(target=stop.wait).start()", "True True True")],
    ids=["one-thread", "two-threads"],
)  # fmt: skip
def test_a_fork_imports_modules_only_if_other_threads_run(thread, expected):
    program = PROGRAM.format(thread=thread)
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (process.stdout.strip(), process.returncode) == (expected, 0), process.stderr
