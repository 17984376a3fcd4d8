"""What a call costs the processor: this process, and the server's process for each of its connections."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from typing import Any

import recollect


class Processor:
    """The clock of the processor for one store: that of a file is read here, that of a server in both its processes."""

    def __init__(self, store: recollect.Store) -> None:
        server: Any = getattr(store._engine, "_server", None)  # noqa: SLF001
        self._near: Any = None if server is None else server._near  # noqa: SLF001

    def taken(self, action: Callable[[], Any], times: int = 1) -> float:
        """Run something so many times: milliseconds of the processor for each."""
        served, begun = self._served(), time.process_time_ns()
        for _ in range(times):
            action()
        here = time.process_time_ns() - begun
        return (here + self._served() - served) / times / 1e6

    def _served(self) -> int:
        """Give the nanoseconds that the server's processes have used for the connections that are open now."""
        if self._near is None:
            return 0
        open_now = (*self._near._kept, *self._near._pool._pool)  # noqa: SLF001
        pids = [connection.info.backend_pid for connection in open_now]
        return sum(int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids)
