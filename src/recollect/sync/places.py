"""The places where tools keep their conversations on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from recollect.errors import InvalidValue, format_value
from recollect.sources import registry
from recollect.sources.source import Environment


class Place(NamedTuple):
    """A file or folder, and the sources that look for transcripts in it."""

    path: Path
    sources: tuple[str, ...]
    follows_links: bool = False
    """Whether folders behind symbolic links belong to it: people move projects to another disk."""


def this_machine() -> Environment:
    """Return the environment of this process."""
    return Environment(Path.home(), os.environ, sys.platform)


def check_sources(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of sources without duplicates; all of them for none. Raise InvalidValue for an unknown name."""
    sources = tuple(dict.fromkeys(names)) or registry.NAMES
    for name in sources:
        if name not in registry.NAMES:
            raise InvalidValue(f"A source must be one of {', '.join(registry.NAMES)}, got {format_value(name)}.")
    return sources


def find_places(environment: Environment, sources: Sequence[str], paths: Iterable[Path] = ()) -> list[Place]:
    """Return where the tools of sources keep their conversations, whether the places exist or not, and further paths.

    A path that several tools use is one place. Symbolic links are followed only in the places of tools.
    """
    sources_by_path: dict[Path, list[str]] = {}
    for name in sources:
        for path in registry.get_source(name).discover(environment):
            sources_by_path.setdefault(path, []).append(name)
    own_paths = set(sources_by_path)
    for path in paths:
        sources_by_path[path] = list(sources)
    return [Place(path, tuple(names), path in own_paths) for path, names in sources_by_path.items()]


def linked_places(place: Place, links: Iterable[str], places: Iterable[Place]) -> list[Place]:
    """Return the folders to which symbolic links in a place lead, as places of their own.

    `places` are the present ones. A folder inside one of them is read already, and one that contains a place is not
    followed: it may be a home folder, and the links could form a circle.
    """
    if not place.follows_links:
        return []
    roots = [Path(os.path.realpath(each.path)) for each in places]
    new: list[Place] = []
    for target in sorted({Path(os.path.realpath(place.path / link)) for link in links}):  # a folder before those in it
        if target.is_dir() and not any(target.is_relative_to(each) or each.is_relative_to(target) for each in roots):
            roots.append(target)
            new.append(Place(target, place.sources, follows_links=True))
    return new
