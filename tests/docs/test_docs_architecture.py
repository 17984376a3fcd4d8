"""ARCHITECTURE.md names every module, in the room where it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "recollect"
BY_KIND = ("server/api", "cli/sessions", "store", "store_async", "testing")
"""Rooms of which the page says by what they are parted, and not each module."""


def rooms() -> dict[str, str]:
    """Give what is said of each room, and of each file that has no room."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    listed = text.partition("    src/recollect/\n")[2].partition("    tests/")[0]
    found: dict[str, str] = {}
    name = ""
    for line in listed.splitlines():
        begun = re.match(r" {6}([\w/.]+?)/?(?: (.*))?$", line)
        if begun is not None:
            name = begun[1]
            found[name] = ""
        found[name] += line
    return found


ROOMS = rooms()
MODULES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py") if path.stem != "__init__")


def test_there_are_rooms_and_modules():
    assert {"model", "ops/search", "engine/postgres", "errors.py"} <= ROOMS.keys()
    assert len(MODULES) > 200


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_is_there(room):
    assert (SOURCE / room).exists()


@pytest.mark.parametrize("module", [module for module in MODULES if module.parent.as_posix() not in BY_KIND], ids=str)
def test_every_module_is_named_in_its_room(module):
    room = module.parent.as_posix()
    if room == ".":
        assert module.name in ROOMS
    else:
        assert re.search(rf"\b{module.stem}\b", ROOMS[room])
