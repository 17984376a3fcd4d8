"""An engine of another distribution: a SQLite file behind the members of the protocols only, without fast paths.

It uses nothing of Recollect but the protocols of recollect.engine.engine and the provider of SQLite, and it runs the
steps of every operation, so the suite shows that an engine needs neither fast paths nor anything that is not declared.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

from recollect.engine.change_notifier import ChangeNotifier
from recollect.engine.engine import AsyncEngine, Engine, Maintenance
from recollect.engine.registry import find_provider
from recollect.model.reports import Backup
from recollect.storage.operation import Operation
from recollect.storage.search.dialect import SearchDialect

T = TypeVar("T")
SCHEME = "steps:"


class StepsFiles:
    """The files of SQLite, at the URLs of this engine."""

    _files: Any = find_provider("sqlite").files

    def exists(self, path: str) -> bool:
        return self._files.exists(_path(path))

    def describe_backup(self, backup: str, path: str, *, verify: bool, timeout: float) -> Backup:
        return self._files.describe_backup(backup, _path(path), verify=verify, timeout=timeout)

    def restore_backup(self, backup: str, path: str, *, verify: bool, timeout: float) -> str | None:
        return self._files.restore_backup(backup, _path(path), verify=verify, timeout=timeout)


files = StepsFiles()
schema_version = find_provider("sqlite").schema_version


def open(url: str, *, owner: str, timeout: float, trusted: bool = False) -> Engine:
    """Open the file of a URL such as steps:///folder/file.db."""
    return StepsEngine(find_provider("sqlite").open(_path(url), owner=owner, timeout=timeout, trusted=trusted))


def open_async(url: str, *, owner: str, timeout: float) -> AsyncEngine:
    """Open the file of a URL for concurrent tasks."""
    return AsyncStepsEngine(find_provider("sqlite").open_async(_path(url), owner=owner, timeout=timeout))


def _path(url: str) -> str:
    return url.removeprefix(f"{SCHEME}//")


def _without_fast_path(op: Operation[T]) -> Operation[T]:
    steps_only = copy.copy(op)
    steps_only.fast = None
    return steps_only


class StepsEngine:
    """Runs the steps of operations on an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def path(self) -> str:
        return self._engine.path

    @property
    def maintenance(self) -> Maintenance | None:
        return self._engine.maintenance

    def as_owner(self, owner: str) -> Engine:
        return StepsEngine(self._engine.as_owner(owner))

    def holder(self) -> str:
        return self._engine.holder()

    def is_gone(self, name: str) -> bool:
        return self._engine.is_gone(name)

    def search_dialect(self) -> SearchDialect:
        return self._engine.search_dialect()

    def run(self, op: Operation[T]) -> T:
        return self._engine.run(_without_fast_path(op))

    def change_notifier(self) -> ChangeNotifier:
        return self._engine.change_notifier()

    def close(self) -> None:
        self._engine.close()


class AsyncStepsEngine:
    """Runs the steps of operations on an async engine."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    @property
    def path(self) -> str:
        return self._engine.path

    @property
    def maintenance(self) -> Maintenance | None:
        return self._engine.maintenance

    def as_owner(self, owner: str) -> AsyncEngine:
        return AsyncStepsEngine(self._engine.as_owner(owner))

    def holder(self) -> str:
        return self._engine.holder()

    def is_gone(self, name: str) -> bool:
        return self._engine.is_gone(name)

    def search_dialect(self) -> SearchDialect:
        return self._engine.search_dialect()

    async def run(self, op: Operation[T]) -> T:
        return await self._engine.run(_without_fast_path(op))

    async def run_blocking(self, work: Callable[[], T]) -> T:
        return await self._engine.run_blocking(work)

    def change_notifier(self) -> ChangeNotifier:
        return self._engine.change_notifier()

    async def close(self) -> None:
        await self._engine.close()
