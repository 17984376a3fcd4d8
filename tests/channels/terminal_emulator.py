"""A person at a terminal: a pseudo-terminal with a screen emulator, and keys to press."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

import pyte

ENTER, ESCAPE, UP, DOWN, ALT_ENTER, TAB = "\r", "\x1b", "\x1b[A", "\x1b[B", "\x1b\r", "\t"


def ctrl(letter):
    return chr(ord(letter.upper()) - 64)


def wait_until(condition, seconds=60):
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.02)


class Terminal:
    """A `recollect` process in a terminal of the given size."""

    def __init__(self, *arguments, env, columns=80, rows=40):
        self.screen = pyte.HistoryScreen(columns, rows, history=5000)
        self.screen.write_process_input = self._answer
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.status = None
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(sys.executable, [sys.executable, "-m", "recollect", *arguments], env)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _answer(self, data):
        """Answer the terminal queries of the program, such as the cursor position."""
        os.write(self._fd, data.encode())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)

    @property
    def in_line_mode(self):
        return bool(termios.tcgetattr(self._fd)[3] & termios.ICANON)

    def press(self, *keys):
        for key in keys:
            os.write(self._fd, key.encode())
            self._read(0.05)

    def submit(self, text):
        self.press(text)
        self.press(ENTER)

    def _read(self, seconds):
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            if not select.select([self._fd], [], [], remaining)[0]:
                return True
            try:
                data = os.read(self._fd, 65536)
            except OSError:
                return False
            if not data:
                return False
            self.raw += data
            # The emulator does not know these sequences (cursor shape, keyboard mode) and would print a part of them.
            self._stream.feed(data.replace(b"\x1b[0 q", b"").replace(b"\x1b[>4;0m", b""))
        return True

    @property
    def screen_text(self):
        return "\n".join(line.rstrip() for line in self.screen.display)

    @property
    def text_with_history(self):
        history = ["".join(row[x].data for x in range(self.screen.columns)).rstrip() for row in self.screen.history.top]
        return "\n".join([*history, self.screen_text])

    def wait(self, *texts, seconds=60, absent=()):
        """Wait until the screen contains all `texts` and none of `absent`, and return its text."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if all(text in self.screen_text for text in texts) and not any(text in self.screen_text for text in absent):
                return self.screen_text
            if not self._read(0.05):
                break
        if all(text in self.screen_text for text in texts) and not any(text in self.screen_text for text in absent):
            return self.screen_text
        raise AssertionError(f"waited for {texts} without {absent}; the screen shows:\n{self.screen_text}")

    def wait_for_exit(self, seconds=60):
        """Wait until the program has ended, and return its exit status."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self._read(0.1):
                time.sleep(0.01)  # the terminal is closed, but the process may still be exiting
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._read(0.1)
                self.status = os.waitstatus_to_exitcode(status)
                return self.status
        raise AssertionError(f"the program did not end; the screen shows:\n{self.screen_text}")
