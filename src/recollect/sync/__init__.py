"""Imports of conversations from other tools: from files into a store, again when they grow, and back to files.

The package `sources` reads the files. This package writes what they read, through the operations of storage/imports.py.
"""

from __future__ import annotations

from recollect.sync.entry_logs import EntryLog, LogInfo, LogName, erase_log, list_logs
from recollect.sync.importer import ImportOptions, import_files
from recollect.sync.native import read_originals
from recollect.sync.report import ImportedConversation, ImportNote, ImportReport

__all__ = [
    "EntryLog",
    "ImportNote",
    "ImportOptions",
    "ImportReport",
    "ImportedConversation",
    "LogInfo",
    "LogName",
    "erase_log",
    "import_files",
    "list_logs",
    "read_originals",
]
