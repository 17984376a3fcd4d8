"""A person at a terminal: a pseudo-terminal, a screen that understands what is drawn, and keys that are pressed."""

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


def until(condition, seconds=60):
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


class Terminal:
    """Runs `recollect` at a terminal of a given size."""

    def __init__(self, *words, env, columns=80, rows=40):
        self.screen = pyte.HistoryScreen(columns, rows, history=5000)
        self.screen.write_process_input = self._answer
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.status = None
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(sys.executable, [sys.executable, "-m", "recollect", *words], env)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _answer(self, data):
        """Answer what a program asks a terminal, such as where the cursor is."""
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

    def say(self, text):
        self.press(text)
        self.press(ENTER)

    def _read(self, seconds):
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if not select.select([self._fd], [], [], left)[0]:
                return True
            try:
                data = os.read(self._fd, 65536)
            except OSError:
                return False
            if not data:
                return False
            self.raw += data
            # The emulator does not know this one, which sets the shape of the cursor, and shows a part of it.
            self._stream.feed(data.replace(b"\x1b[0 q", b"").replace(b"\x1b[>4;0m", b""))
        return True

    @property
    def shown(self):
        return "\n".join(line.rstrip() for line in self.screen.display)

    @property
    def everything(self):
        above = ["".join(row[x].data for x in range(self.screen.columns)).rstrip() for row in self.screen.history.top]
        return "\n".join([*above, self.shown])

    def wait(self, *texts, seconds=60, gone=()):
        """Wait until all of these are on the screen, and those are not."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if all(text in self.shown for text in texts) and not any(text in self.shown for text in gone):
                return self.shown
            if not self._read(0.05):
                break
        if all(text in self.shown for text in texts) and not any(text in self.shown for text in gone):
            return self.shown
        raise AssertionError(f"waited for {texts} without {gone}; there is:\n{self.shown}")

    def end(self, seconds=60):
        """Wait until the program has ended; give its exit status."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not self._read(0.1):
                time.sleep(0.01)  # its terminal is closed, and it has a moment to live
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._read(0.1)
                self.status = os.waitstatus_to_exitcode(status)
                return self.status
        raise AssertionError(f"it did not end; there is:\n{self.shown}")
