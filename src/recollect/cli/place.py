"""The store that a command works on: named by --db and --owner, the environment or the configuration."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import click

import recollect
from recollect import config
from recollect.cli.group import DATABASE, OWNER
from recollect.cli.screen import remark
from recollect.engine.url import MEMORY, Target, target
from recollect.errors import NotFound
from recollect.model.amount import many
from recollect.store import opened_at

_TIMEOUT = 30.0  # seconds, the default of recollect.open()

if TYPE_CHECKING:
    from recollect.config.effective import Config
    from recollect.model.pruning import PruneReport
    from recollect.store import Store


def named() -> str | None:
    """Give what --db says, if it was given."""
    return click.get_current_context().meta.get(DATABASE)


def named_owner() -> str | None:
    """Give what --owner says, if it was given."""
    return click.get_current_context().meta.get(OWNER)


def owner() -> str:
    """Say whose conversations the command works on."""
    found = named_owner()
    if found is not None:
        return found
    return config.owner() if named() is None else os.environ.get(config.OWNER, "")


def chosen_owner() -> str | None:
    """Return the owner that --owner, the environment or the configuration names; None if none of them does."""
    found = named_owner()
    return (owner() or None) if found is None else found


def where() -> str:
    """Say where the data is, as a person may read it: a URL without its password."""
    return _target().shown


def engine() -> str:
    """Name the engine of the store."""
    return _target().engine


def _target() -> Target:
    return target(named() or config.database())


def missing() -> bool:
    """Whether there is no database yet. One that may not be looked for is not missing: opening it says why."""
    found = _target()
    if found.engine != "sqlite" or found.path == MEMORY:
        return False
    try:
        os.stat(found.path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def must_exist(purpose: str) -> None:
    """Refuse where there is no database: an empty one in its place would be said to be sound."""
    if missing():
        raise NotFound(f"There is no database at {where()} to {purpose}.")


def settings() -> Config:
    """Read the settings, with the options of this command over them."""
    from recollect.config.effective import load  # noqa: PLC0415

    return load({"--db": named(), "--owner": named_owner()})


@contextlib.contextmanager
def reading() -> Generator[Store]:
    """Open the store to read from it. Where there is no file none is made: looking must leave no trace."""
    place = MEMORY if missing() else named() or config.database()
    with recollect.open(place, owner=owner()) as store:
        yield store


@contextlib.contextmanager
def writing() -> Generator[Store]:
    """Open the store to change something, and let go of what the configuration says is to go."""
    with opened() as store:
        keep_retention(store, settings())
        yield store


def opened() -> Store:
    """Open the store as it is."""
    return recollect.open(named() or config.database(), owner=owner())


def opened_for(owner: str) -> Store:
    """Open the store of any owner, also with a role that bypasses row-level security. A missing file is not created."""
    return opened_at(target(MEMORY) if missing() else _target(), owner, _TIMEOUT, trusted=True)


def usable_by(owner: str) -> None:
    """Raise what stands against keeping the conversations of an owner here, by opening the store for them."""
    recollect.open(named() or config.database(), owner=owner).close()


def retention(config: Config) -> dict[str, float]:
    """Give the retention that is configured, as store.prune() takes it."""
    age = config["retention.max_age"]
    limits = {"older_than": age and age / 1000, "max_messages": config["retention.max_messages"]}
    return {name: limit for name, limit in limits.items() if limit is not None}


def keep_retention(store: Any, config: Config) -> None:
    """Apply the retention that is configured, and say so. Nothing goes unless it is; what goes, goes to the trash."""
    limits = retention(config)
    if not limits:
        return
    say_retained(store.prune(**limits))


def retain(config: Config) -> None:
    """Let go of what the configuration says is to go, before a talk begins; where that is nothing, open nothing."""
    if retention(config):
        with opened() as store:
            keep_retention(store, config)


def say_retained(report: PruneReport) -> None:
    """Say what went because of the retention that is configured."""
    if report.count or report.trimmed:
        gone = [many(report.count, "conversation")] if report.count else []
        gone += [f"{many(report.trimmed, 'stored message')} of long ones"] if report.trimmed else []
        remark(f"Retention: {' and '.join(gone)} went to the trash. `recollect config` shows why.")
