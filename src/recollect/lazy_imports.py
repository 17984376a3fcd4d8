"""Support for packages whose modules are imported on first use.

`import recollect` is fast because storage and formats import most of their modules on first use; all of them cost 42 ms
of processor time, half of what `import recollect` costs. A lazy import is unsafe across fork(): if another thread is
importing a module at that moment, the child inherits a locked import lock that nobody releases. A package registers a
function here that imports its remaining modules. It runs before a fork, and only if the process has more than one
thread: with one thread, no import can be under way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

_loaders: list[Callable[[], None]] = []


def import_before_fork(load: Callable[[], None]) -> None:
    """Call load() before every fork of a process with several threads. It must be cheap once everything is imported."""
    if not _loaders and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before_fork)
    _loaders.append(load)


def _before_fork() -> None:
    # threading.active_count() would need an import of threading.
    if len(sys._current_frames()) > 1:  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        for load in _loaders:
            load()
