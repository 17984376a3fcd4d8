"""How the sync store waits: on the caller's thread.

The names are those of store_async.waiting. The other modules of this package are generated from store_async and import
these names; the functions that only wait return what they are passed, because a sync call has already ended.
"""

from __future__ import annotations

from collections.abc import Callable
from time import sleep
from typing import TYPE_CHECKING, Any, Self, TypeVar

from recollect.engine.change_notifier import ChangeNotice, ChangeNotifier

if TYPE_CHECKING:
    from recollect.engine.engine import Engine
    from recollect.history.compaction import Summarize
    from recollect.model.message import Message
    from recollect.storage.integrity import CheckProgress
    from recollect.store.store import Store

__all__ = [
    "Openable", "PauseFlusher", "WatchThread", "close_anywhere", "maintain", "open_if_sync",
    "pause_flusher", "require_open", "run_to_end", "run_to_end_or_undo", "sleep", "summarize_messages",
]  # fmt: skip

T = TypeVar("T")
H = TypeVar("H", bound="Openable")


class Openable:
    """A handle that is open as soon as its user has it."""

    def _open(self) -> Self:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self


def open_if_sync(handle: H) -> H:
    """Open a handle, and return it."""
    return handle._open()  # pyright: ignore[reportPrivateUsage]


def require_open(handle: T | None, name: str) -> T:
    """Return what a handle has once it is open."""
    assert handle is not None, name
    return handle


def run_to_end(result: T) -> T:
    """Return the result."""
    return result


def run_to_end_or_undo(result: T, undo: Callable[[T], object]) -> T:  # noqa: ARG001  nothing cancels a thread
    """Return the result."""
    return result


def close_anywhere(result: None) -> None:
    """Return: the store is closed."""


def summarize_messages(summarize: Summarize, messages: list[Message]) -> Any:
    """Return the summary. Raise InvalidValue if the function is async."""
    from recollect.history.compaction import check_summary  # noqa: PLC0415  few programs compact

    return check_summary(summarize(messages))


def maintain(
    engine: Engine,  # noqa: ARG001  an async engine runs it in a thread
    work: Callable[[CheckProgress | None], T],
    progress: CheckProgress | None,
) -> T:
    """Run maintenance, which reports its progress, and return its result."""
    return work(progress)


class WatchThread:
    """The thread that iterates over a watch uses the change notifier itself."""

    def call(self, function: Callable[[], T]) -> T:
        """Call a function."""
        return function()

    def wait(self, notifier: ChangeNotifier, seconds: float) -> ChangeNotice | None:
        """Wait for a change."""
        return notifier.wait(seconds)

    def end(self) -> None:
        """Do nothing."""


class PauseFlusher:
    """Flushes nothing while a writer pauses: the next write, or closing the stream, stores the text."""

    def schedule(self, flush: Callable[[], object]) -> None:
        """Do nothing."""

    def settle(self, flush: Callable[[], object]) -> None:
        """Do nothing."""


_PAUSE_FLUSHER = PauseFlusher()


def pause_flusher(store: Store) -> PauseFlusher:  # noqa: ARG001  an async store has its own
    """Return the flusher of a store."""
    return _PAUSE_FLUSHER
