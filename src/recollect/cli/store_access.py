"""The store that a command uses: from --db and --owner, else the environment, else the configuration.

A command about the whole database runs once per owner.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import click

import recollect
from recollect import config
from recollect.cli.group import DATABASE, OWNER
from recollect.cli.output import print_note, sanitize
from recollect.engine.registry import find_provider
from recollect.engine.url import MEMORY, StoreTarget, parse_target
from recollect.errors import NotFound, RecollectError
from recollect.model.humanize import pluralize
from recollect.store import open_target

if TYPE_CHECKING:
    from recollect.config.loader import Config
    from recollect.engine.engine import EngineProvider
    from recollect.model.reports import PruneReport
    from recollect.store import Store

_TIMEOUT = 30.0  # seconds, the default of recollect.open()


def database_option() -> str | None:
    """Return the value of --db; None if it was not used."""
    return click.get_current_context().meta.get(DATABASE)


def owner_option() -> str | None:
    """Return the value of --owner; None if it was not used."""
    return click.get_current_context().meta.get(OWNER)


def selected_owner() -> str:
    """Return the owner whose conversations the command uses."""
    owner = owner_option()
    if owner is not None:
        return owner
    return config.owner() if database_option() is None else os.environ.get(config.OWNER, "")


def configured_owner() -> str | None:
    """Return the owner that --owner, the environment or the configuration names; None if none of them does."""
    owner = owner_option()
    return (selected_owner() or None) if owner is None else owner


def database_location() -> str:
    """Return the path or URL of the database, without its password."""
    return _store_target().display_url


def engine_provider() -> EngineProvider:
    """Return the engine of the database."""
    return find_provider(_store_target().engine)


def database_target() -> str | os.PathLike[str]:
    """Return the path or URL of the database, as recollect.open() takes it."""
    return database_option() or config.database()


def _store_target() -> StoreTarget:
    return parse_target(database_target())


def database_missing() -> bool:
    """Return whether the database file does not exist. An unreadable path is not missing: opening it reports why."""
    files = engine_provider().files
    return files is not None and not files.exists(_store_target().path)


def require_database(purpose: str) -> None:
    """Raise NotFound if the database does not exist: a new empty one would pass every check."""
    if database_missing():
        raise NotFound(f"No database exists at {database_location()}; there is nothing to {purpose}.")


def load_settings() -> Config:
    """Return the settings, overridden by the options of this command."""
    from recollect.config.loader import load_config  # noqa: PLC0415

    return load_config({"--db": database_option(), "--owner": owner_option()})


@contextlib.contextmanager
def open_for_reading() -> Generator[Store]:
    """Open the store for reading. A missing file is not created: reading must leave no trace."""
    location = MEMORY if database_missing() else database_target()
    with recollect.open(location, owner=selected_owner()) as store:
        yield store


@contextlib.contextmanager
def open_for_writing() -> Generator[Store]:
    """Open the store for writing, and apply the configured retention."""
    with open_store() as store:
        apply_retention(store, load_settings())
        yield store


def open_store() -> Store:
    """Open the store without applying retention."""
    return recollect.open(database_target(), owner=selected_owner())


def open_store_of(owner: str) -> Store:
    """Open the store of any owner, also with a role that bypasses row-level security. A missing file is not created."""
    return open_target(parse_target(MEMORY) if database_missing() else _store_target(), owner, _TIMEOUT, trusted=True)


def check_owner(owner: str) -> None:
    """Open and close the store for an owner, so that errors are raised at start."""
    recollect.open(database_target(), owner=owner).close()


def retention_limits(config: Config) -> dict[str, float]:
    """Return the configured retention as arguments of store.maintenance.prune(); the age in seconds."""
    age = config["retention.max_age"]
    limits = {"older_than": age and age / 1000, "max_messages": config["retention.max_messages"]}
    return {name: limit for name, limit in limits.items() if limit is not None}


def apply_retention(store: Any, config: Config) -> None:
    """Apply the configured retention and report it. Without a setting, nothing is pruned."""
    limits = retention_limits(config)
    if not limits:
        return
    report_retention(store.maintenance.prune(**limits))


def apply_retention_at_start(config: Config) -> None:
    """Apply the configured retention before a chat. Without a setting, the store is not opened."""
    if retention_limits(config):
        with open_store() as store:
            apply_retention(store, config)


def report_retention(report: PruneReport) -> None:
    """Print the number of conversations and messages that the configured retention removed."""
    if report.count or report.trimmed:
        parts = [f"moved {pluralize(report.count, 'conversation')} to the trash"] if report.count else []
        parts += (
            [f"deleted {pluralize(report.trimmed, 'stored message')} of long conversations"] if report.trimmed else []
        )
        print_note(f"Retention: {' and '.join(parts)}. `recollect config` shows the limits.")


T = TypeVar("T")

DEFAULT_OWNER = "(default)"
HIDDEN_OWNERS = (
    "A row-level security policy may hide owners from this role. Connect as a superuser or as a role with BYPASSRLS, "
    "or name each owner with --owner."
)


class OwnerResults(NamedTuple, Generic[T]):
    """The results by owner, and the owners without a result."""

    results: dict[str, T]
    unread: dict[str, str]
    """The owners that could not be read, with the reasons."""

    everyone: bool
    """Whether the role can see every owner of the database."""

    explicit: bool
    """Whether the owner was selected by an option or a setting."""

    @property
    def complete(self) -> bool:
        """True if every selected owner was read."""
        return not self.unread and (self.everyone or self.explicit)

    @property
    def shared(self) -> bool:
        """True if output must name owners: there are, or may be, others than the default owner."""
        return self.explicit or not self.complete or list(self.results) != [""]

    def to_dict(self) -> dict[str, Any]:
        """Return the owners that were read, for JSON."""
        return {"owners": list(self.results), "everyone": self.everyone, "unread": self.unread}

    def describe(self) -> str:
        """Return a sentence that names the owners; empty for a database without named owners."""
        if not self.shared:
            return ""
        names = ", ".join(owner_label(owner) for owner in self.results) or "none"
        return f" Only owner {names}." if self.explicit else f" Owners: {names}."

    def print_missing(self) -> None:
        """Print the owners that were not read to standard error."""
        for owner, reason in self.unread.items():
            print_note(f"Owner {owner_label(owner)} could not be read: {sanitize(reason)}")
        if not self.everyone and not self.explicit:
            print_note(HIDDEN_OWNERS)


def owner_label(owner: str) -> str:
    """Return the name of an owner for output."""
    return sanitize(owner) or DEFAULT_OWNER


def run_for_owners(work: Callable[[Store], T]) -> OwnerResults[T]:
    """Call `work` with the store of each owner, one after another.

    An owner whose store fails is left out and reported; if every one fails, the last error is raised.
    """
    owner = configured_owner()
    names, everyone, explicit = [owner or ""], False, owner is not None
    if not explicit:
        with open_store_of("") as store:
            owners = store.maintenance.owners()
        names, everyone = list(owners.names) or [""], owners.everyone
    results: dict[str, T] = {}
    unread: dict[str, str] = {}
    for name in names:
        try:
            with open_store_of(name) as store:
                results[name] = work(store)
        except RecollectError as error:
            if len(unread) + 1 == len(names):
                raise
            unread[name] = str(error)
    return OwnerResults(results, unread, everyone, explicit)
