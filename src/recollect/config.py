"""Settings from the environment, and the defaults. `RECOLLECT_DB` names the store: a path or a URL."""

from __future__ import annotations

import os
import sys

DATABASE = "RECOLLECT_DB"


def database() -> str:
    """Say where the store is when nobody names one."""
    return os.environ.get(DATABASE) or os.path.join(data_folder(), "recollect.db")


def data_folder() -> str:
    """Name the folder of this platform for a program's data."""
    if sys.platform == "win32":
        return os.path.join(os.environ.get("LOCALAPPDATA") or os.path.expanduser("~\\AppData\\Local"), "recollect")
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Application Support/recollect")
    return os.path.join(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "recollect")
