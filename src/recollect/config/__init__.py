"""Settings from one TOML file, the environment and command options, in increasing precedence, with the source of each.

Opening a store only needs database(). Without a settings file that costs one stat() call and imports nothing: the
settings are defined in settings.py, combined in loader.py, and read from the file in toml_file.py.
"""

from __future__ import annotations

import os
import sys

from recollect.errors import InvalidConfig, InvalidValue

DATABASE = "RECOLLECT_DB"
OWNER = "RECOLLECT_OWNER"
CONFIG = "RECOLLECT_CONFIG"


def database() -> str:
    """Return the path or URL of the database that is used if the caller names none."""
    value = os.environ.get(DATABASE)
    if value:
        return value
    if not config_file_exists(config_file()):
        return default_database()
    from recollect.config.loader import load_config  # noqa: PLC0415  costs 15 ms, not needed without a settings file

    return load_config().database


def owner() -> str:
    """Return the owner whose sessions a command uses by default. An owner in the file only applies to its database."""
    value = os.environ.get(OWNER)
    if value or os.environ.get(DATABASE) or not config_file_exists(config_file()):
        return value or ""
    from recollect.config.loader import load_config  # noqa: PLC0415

    return load_config()["db.owner"] or ""


def default_database() -> str:
    """Return the path of the database that is used if nothing is configured."""
    return os.path.join(data_folder(), "recollect.db")


def data_folder() -> str:
    """Return the platform's folder for application data."""
    if sys.platform == "win32":
        return os.path.join(os.environ.get("LOCALAPPDATA") or os.path.expanduser("~\\AppData\\Local"), "recollect")
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Application Support/recollect")
    return os.path.join(_absolute_folder("XDG_DATA_HOME") or os.path.join(_home(), ".local/share"), "recollect")


def config_folder() -> str:
    """Return the platform's folder for application settings."""
    if sys.platform == "win32":
        return os.path.join(os.environ.get("APPDATA") or os.path.expanduser("~\\AppData\\Roaming"), "recollect")
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Application Support/recollect")
    return os.path.join(_absolute_folder("XDG_CONFIG_HOME") or os.path.join(_home(), ".config"), "recollect")


def expand_home(path: str) -> str:
    """Return a path with a leading ~ replaced by the home folder. Raise InvalidValue if the user is unknown."""
    if path == "~" or path.startswith("~/"):
        return _home() + path[1:]
    expanded_path = os.path.expanduser(path)
    # Without this check, a folder with the literal name "~user" would be created in the current folder.
    if expanded_path.startswith("~") and "/" in expanded_path:
        name = expanded_path.partition("/")[0]
        raise InvalidValue(
            f"The home folder {name} of {path!r} is unknown. Write the full path, or ./{name} for a folder of that "
            "name."
        )
    return expanded_path


def _home() -> str:
    """Return the home folder of the user. An empty HOME is ignored: paths would end up below the root."""
    if os.environ.get("HOME") != "":
        return os.path.expanduser("~")
    import pwd  # noqa: PLC0415  rarely needed, and missing on Windows

    return pwd.getpwuid(os.getuid()).pw_dir


def _absolute_folder(variable: str) -> str:
    """Return the folder in a variable; the XDG specification requires that relative paths are ignored."""
    folder = os.environ.get(variable, "")
    return folder if os.path.isabs(folder) else ""


def config_file() -> str:
    """Return the path of the settings file, which may not exist."""
    value = os.environ.get(CONFIG)
    return os.path.abspath(expand_home(value)) if value else os.path.join(config_folder(), "config.toml")


def config_file_exists(path: str) -> bool:
    """Return whether the settings file exists. Raise InvalidConfig if RECOLLECT_CONFIG names a missing file."""
    if os.path.exists(path):
        return True
    if os.environ.get(CONFIG):
        raise InvalidConfig(f"{CONFIG} names {path}, which does not exist.", path=path, line=None)
    return False


def make_folder(folder: str) -> None:
    """Create a folder and its missing parents, each accessible to its owner only."""
    missing: list[str] = []
    while folder and not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for path in reversed(missing):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            continue
