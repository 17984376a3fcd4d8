"""Type-ahead: the next prompt reads the keys that were pressed while none was shown, as if they were pressed then.

A terminal in line mode turns Enter into a line feed, keeps Ctrl-D for itself, echoes keys into the answer that is being
drawn, and drops input beyond 4,096 bytes. So line mode is off for as long as `recollect chat` runs. Keys pressed before
the program could switch it off are translated back.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Generator
from typing import Any

_INT_SIZE = 4  # bytes of the int that FIONREAD fills in


class TypeAhead:
    """Keys that the terminal took in line mode, before this program switched it off."""

    def __init__(self, handle: int = -1, size: int = 0) -> None:
        self._handle = handle
        self._size = size

    def hand_over(self) -> None:
        """Pass these keys to the next prompt. Until then they stay in the terminal, for another program to read."""
        size, self._size = self._size, 0
        if not size or not select.select([self._handle], [], [], 0)[0]:
            return
        from prompt_toolkit.input import create_input  # noqa: PLC0415  takes 100 ms, so it is imported after line mode is off
        from prompt_toolkit.input.typeahead import store_typeahead  # noqa: PLC0415
        from prompt_toolkit.input.vt100_parser import Vt100Parser  # noqa: PLC0415

        presses: list[Any] = []
        parser = Vt100Parser(presses.append)
        parser.feed(to_raw_keys(os.read(self._handle, size)).decode("utf-8", "surrogateescape"))
        parser.flush()
        store_typeahead(create_input(), presses)


def to_raw_keys(data: bytes) -> bytes:
    """Return the pressed keys for input read in line mode, which stores Enter as a line feed and Ctrl-D as NUL."""
    return data.replace(b"\n", b"\r").replace(b"\0", b"\x04")


def is_interactive() -> bool:
    """Return whether standard input and output are terminals."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextlib.contextmanager
def line_mode_off() -> Generator[TypeAhead]:
    """Switch line mode off inside this context. Ctrl-C still interrupts."""
    try:
        import fcntl  # noqa: PLC0415  not on Windows
        import termios  # noqa: PLC0415
    except ImportError:
        yield TypeAhead()
        return
    try:
        handle = sys.stdin.fileno()
        before = termios.tcgetattr(handle)
    except (ValueError, OSError, termios.error):
        yield TypeAhead()
        return
    changed = [*before]
    changed[0] &= ~(termios.ICRNL | termios.IXON)
    changed[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
    changed[6] = [*before[6]]
    changed[6][termios.VMIN], changed[6][termios.VTIME] = 1, 0
    termios.tcsetattr(handle, termios.TCSANOW, changed)
    waiting = fcntl.ioctl(handle, termios.FIONREAD, bytes(_INT_SIZE))
    try:
        yield TypeAhead(handle, int.from_bytes(waiting, sys.byteorder))
    finally:
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(handle, termios.TCSANOW, before)


def terminal_input() -> Any:
    """Return prompt_toolkit's input, changed so that it does not enter line mode while a prompt draws above itself."""
    from prompt_toolkit.input import create_input  # noqa: PLC0415

    terminal: Any = create_input()
    terminal.cooked_mode = contextlib.nullcontext
    return terminal
