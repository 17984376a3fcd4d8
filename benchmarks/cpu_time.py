"""The CPU time of a call: of this process, and of the server's process for each connection."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from typing import Any

import recollect


class CpuTimer:
    """Measures CPU time for one store: of this process for a file, of this process and the server for PostgreSQL."""

    def __init__(self, store: recollect.Store) -> None:
        server: Any = getattr(store._engine, "_server", None)  # noqa: SLF001
        self._connection_cache: Any = None if server is None else server._connection_cache  # noqa: SLF001

    def measure(self, action: Callable[[], Any], times: int = 1) -> float:
        """Run an action `times` times and return the milliseconds of CPU time per run."""
        server_before, started = self._server_time(), time.process_time_ns()
        for _ in range(times):
            action()
        own_time = time.process_time_ns() - started
        return (own_time + self._server_time() - server_before) / times / 1e6

    def _server_time(self) -> int:
        """Return the nanoseconds of CPU time that the server used for the connections that are open now."""
        if self._connection_cache is None:
            return 0
        connections = (*self._connection_cache._idle, *self._connection_cache._pool._pool)  # noqa: SLF001
        pids = [connection.info.backend_pid for connection in connections]
        return sum(int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids)
