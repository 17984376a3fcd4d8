"""Settings: one TOML file, the environment over it, the options of a command over both, and where each came from.

Who opens a store asks only for database(). Where there is no file that costs one look at the disk and loads nothing:
the settings themselves are in settings.py, what is read in effective.py, the file in toml.py, types in values.py.
"""

from __future__ import annotations

import os
import sys

from recollect.errors import InvalidConfig, InvalidValue

DATABASE = "RECOLLECT_DB"
OWNER = "RECOLLECT_OWNER"
CONFIG = "RECOLLECT_CONFIG"


def database() -> str:
    """Say where the store is when nobody names one."""
    named = os.environ.get(DATABASE)
    if named:
        return named
    if not there(file()):
        return default_database()
    from recollect.config.effective import load  # noqa: PLC0415  15 ms that who has no file need not pay

    return load().database


def owner() -> str:
    """Say whose conversations a command works on when nobody is named: an owner in the file goes with its database."""
    named = os.environ.get(OWNER)
    if named or os.environ.get(DATABASE) or not there(file()):
        return named or ""
    from recollect.config.effective import load  # noqa: PLC0415

    return load()["db.owner"] or ""


def default_database() -> str:
    """Name the database that is used when nothing is set."""
    return os.path.join(data_folder(), "recollect.db")


def data_folder() -> str:
    """Name the folder of this platform for a program's data."""
    if sys.platform == "win32":
        return os.path.join(os.environ.get("LOCALAPPDATA") or os.path.expanduser("~\\AppData\\Local"), "recollect")
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Application Support/recollect")
    return os.path.join(_absolute("XDG_DATA_HOME") or os.path.join(_home(), ".local/share"), "recollect")


def config_folder() -> str:
    """Name the folder of this platform for a program's settings."""
    if sys.platform == "win32":
        return os.path.join(os.environ.get("APPDATA") or os.path.expanduser("~\\AppData\\Roaming"), "recollect")
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Application Support/recollect")
    return os.path.join(_absolute("XDG_CONFIG_HOME") or os.path.join(_home(), ".config"), "recollect")


def expanded(path: str) -> str:
    """Put the home folder in the place of the ~ that a path begins with. A person who is not known is an error."""
    if path == "~" or path.startswith("~/"):
        return _home() + path[1:]
    found = os.path.expanduser(path)
    if found.startswith("~") and "/" in found:  # it would be a folder of that name, wherever one happens to be
        name = found.partition("/")[0]
        raise InvalidValue(
            f"{path!r} begins with a home folder that is not known: {name}. Write the path out, or ./{name} for a "
            "folder that is called so."
        )
    return found


def _home() -> str:
    """Name the home of this person. An empty HOME is none: with it everything would be put under the root."""
    if os.environ.get("HOME") != "":
        return os.path.expanduser("~")
    import pwd  # noqa: PLC0415  hardly ever needed, and not there on every system

    return pwd.getpwuid(os.getuid()).pw_dir


def _absolute(variable: str) -> str:
    """Read a variable that names a folder; the specification has a relative one passed over."""
    folder = os.environ.get(variable, "")
    return folder if os.path.isabs(folder) else ""


def file() -> str:
    """Name the file with the settings, whether or not it is there."""
    named = os.environ.get(CONFIG)
    return os.path.abspath(expanded(named)) if named else os.path.join(config_folder(), "config.toml")


def there(path: str) -> bool:
    """Whether there is a file; one that was named must be there."""
    if os.path.exists(path):
        return True
    if os.environ.get(CONFIG):
        raise InvalidConfig(f"{CONFIG} names {path}, and there is no such file.", path=path, line=None)
    return False


def make_folder(folder: str) -> None:
    """Make a folder and those above it that are missing, each open to its owner only."""
    missing: list[str] = []
    while folder and not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for each in reversed(missing):
        try:
            os.mkdir(each, 0o700)
        except FileExistsError:
            continue
