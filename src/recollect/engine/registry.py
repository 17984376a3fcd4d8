"""The engines by URL scheme: the built-in ones, and those that other distributions register as entry points."""

from __future__ import annotations

import importlib
from typing import Any

from recollect.engine.engine import EngineProvider
from recollect.errors import NotSupported, RecollectError

GROUP = "recollect.engines"
_REQUIRED_NAMES = ("files", "open", "open_async", "schema_version")  # of EngineProvider

# The same as the entry points of Recollect itself, which a test compares. importlib.metadata takes 30 ms at start, so
# only an unknown scheme makes the registry look at the installed distributions.
PROVIDERS = {
    "postgres": "recollect.engine.postgres.provider",
    "postgresql": "recollect.engine.postgres.provider",
    "sqlite": "recollect.engine.sqlite.provider",
}


def is_registered(scheme: str) -> bool:
    """Return whether an engine is registered for a URL scheme."""
    return scheme in PROVIDERS or _entry_point(scheme) is not None


def find_provider(scheme: str) -> EngineProvider:
    """Return the engine of a URL scheme. Raise LookupError if none is registered, NotSupported if it is broken."""
    if scheme in PROVIDERS:
        return importlib.import_module(PROVIDERS[scheme])  # type: ignore[return-value]  # the module has its functions
    entry_point = _entry_point(scheme)
    if entry_point is None:
        raise LookupError(scheme)
    try:
        provider = entry_point.load()
    except (ImportError, AttributeError) as error:
        raise _broken_entry_point(entry_point, str(error)) from error
    missing = [name for name in _REQUIRED_NAMES if not hasattr(provider, name)]
    if missing:
        raise _broken_entry_point(entry_point, f"it has no {missing[0]!r}")
    return provider


def _broken_entry_point(entry_point: Any, reason: str) -> RecollectError:
    distribution = "another package" if entry_point.dist is None else f"the package {entry_point.dist.name}"
    return NotSupported(
        f"The engine of {entry_point.name}: URLs cannot be loaded: {distribution} registers {entry_point.value!r} in "
        f"the entry point group {GROUP}, and {reason}. Reinstall the package, or report this to its authors.",
        what=f"The engine of {entry_point.name}: URLs",
    )


def _entry_point(scheme: str) -> Any:
    from importlib.metadata import entry_points  # noqa: PLC0415  see PROVIDERS

    return next(iter(entry_points(group=GROUP, name=scheme)), None)
