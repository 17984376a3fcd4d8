"""Write the programs of a page to files and run them as processes."""

from __future__ import annotations

import contextlib
import pathlib
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator

from docs_pages import read_page

_PROGRAM = re.compile(r"^( *)```python\n\1# (\w+\.py)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def write_programs(page: str, folder: pathlib.Path) -> list[str]:
    """Write each code block whose first line is `# <name>.py` to this file; return the names in order."""
    names: list[str] = []
    for _, name, text in _PROGRAM.findall(read_page(page)):
        (folder / name).write_text(textwrap.dedent(text), encoding="utf-8")
        names.append(name)
    return names


@contextlib.contextmanager
def start(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Start Python with these arguments in the current folder; kill the process at the end of the block."""
    with subprocess.Popen(
        [sys.executable, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_line(process: subprocess.Popen[str], text: str) -> None:
    """Read the output of a process until a line contains a text."""
    lines: list[str] = []
    for line in process.stdout or ():
        lines.append(line)
        if text in line:
            return
    raise AssertionError(f"the process ended without {text!r}:\n{''.join(lines)}")


def wait_until(condition: Callable[[], object], seconds: float = 120) -> None:
    """Wait until a condition is true; fail after a time that only a defect reaches."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.05)
