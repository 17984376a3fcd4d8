"""What is typed while nobody reads: it waits as it was typed, and is read by the next prompt.

A terminal turns Enter into a line feed unless a program asks for keys as they are. A prompt does ask, but what was
typed before it came would then begin a new line instead of sending the one that was typed. It would also be echoed
into the answer that is being drawn. Ctrl-D would be taken by the terminal, and nobody would ever read it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator


@contextlib.contextmanager
def kept() -> Generator[None]:
    """Keep Enter and Ctrl-D, and the screen clean, for as long as this lasts. Ctrl-C goes on to stop an answer."""
    try:
        import termios  # noqa: PLC0415  not on Windows
    except ImportError:
        yield
        return
    try:
        handle = sys.stdin.fileno()
        before = termios.tcgetattr(handle)
        nothing = bytes([os.fpathconf(handle, "PC_VDISABLE") & 0xFF])
    except (ValueError, OSError, termios.error):
        yield
        return
    changed = [*before]
    changed[0] &= ~termios.ICRNL
    changed[3] &= ~termios.ECHO
    changed[6] = [*before[6]]
    changed[6][termios.VEOF] = nothing
    termios.tcsetattr(handle, termios.TCSANOW, changed)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(handle, termios.TCSANOW, before)
