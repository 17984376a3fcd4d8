"""What SQLite leaves behind in its pages, wiped.

secure_delete overwrites what is deleted. But when a page is full and its rows are spread over more pages, copies of
the rows that moved stay in the old page, between its directory and its first row, where nothing refers to them. When
such a row is deleted in its new place, the copy stays. So after an erasure these gaps are overwritten with zeros.

SQLite has no way to do that, short of writing the whole file anew (VACUUM). The pages are written through SQLite's own
file layer, which keeps its locks, while nobody else can write and nothing of them is in the log: readers see
no difference, since a gap is not part of a page's content. Then a commit that changes nothing makes every other
connection forget the pages that it had read before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import cast

import apsw

from recollect.engine.sqlite.connection import CHECKSUM_BYTES, PAGE_SIZE, checksum_vfs, configure, connect

_LEAVES = (10, 13)
_INNER = (2, 5)
_TREE = (1, 5)  # kinds in a pointer map: the root and the other pages of a tree
_ENTRY = 5
_SPAN = (PAGE_SIZE - CHECKSUM_BYTES) // _ENTRY + 1  # a page of pointers and the pages that it is about
_LOCK_PAGE = 0x40000000 // PAGE_SIZE + 1  # never used, for the sake of locks on Windows
_OPEN = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_MAIN_DB
_AUTO_VACUUM = 2


def wipe(path: str, timeout: float) -> bool:
    """Overwrite the gaps in all pages of a file. False where the log could not be emptied first: try again later."""
    keeper = connect(path, timeout)
    try:
        configure(keeper)
        if _ours(keeper):
            keeper.execute("BEGIN IMMEDIATE")  # from here on nobody writes
            if not _folded(path, timeout):
                return False
            if _wipe_pages(path, _pages(keeper)):
                version = keeper.execute("PRAGMA user_version").fetchall()[0][0]
                keeper.execute(f"PRAGMA user_version = {version}")
            keeper.execute("COMMIT")
    finally:
        if keeper.in_transaction:
            keeper.execute("ROLLBACK")
        keeper.close()
    return True


def _ours(connection: apsw.Connection) -> bool:
    """Whether the file has the form that we give to new ones; another form is left to VACUUM."""
    page = connection.execute("PRAGMA page_size").fetchall()[0][0]
    kept = connection.execute("PRAGMA auto_vacuum").fetchall()[0][0]
    return (page, kept, connection.reserve_bytes()) == (PAGE_SIZE, _AUTO_VACUUM, CHECKSUM_BYTES)


def _pages(connection: apsw.Connection) -> int:
    return cast("int", connection.execute("PRAGMA page_count").fetchall()[0][0])


def _folded(path: str, timeout: float) -> bool:
    """Move what is in the log into the file; say if all of it is there now."""
    other = connect(path, timeout)
    try:
        configure(other)
        _, logged, moved = other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()[0]
    finally:
        other.close()
    return logged == moved


def _wipe_pages(path: str, count: int) -> bool:
    """Go through the pages and overwrite the gaps; say if there was something in one."""
    found = False
    with _opened(path) as file:
        file.xRead(PAGE_SIZE, 0)  # the checksums are written where the first page asks for them
        for start in range(2, count + 1, _SPAN):
            pointers = start + 1 if start == _LOCK_PAGE else start
            kinds = file.xRead(PAGE_SIZE, (pointers - 1) * PAGE_SIZE)
            for number in range(pointers + 1, min(start + _SPAN, count + 1)):
                if kinds[_ENTRY * (number - pointers - 1)] not in _TREE or number == _LOCK_PAGE:
                    continue
                page = file.xRead(PAGE_SIZE, (number - 1) * PAGE_SIZE)
                clean = _without_residue(page)
                if clean is not None:
                    file.xWrite(clean, (number - 1) * PAGE_SIZE)
                    found = True
        if found:
            file.xSync(apsw.SQLITE_SYNC_FULL)
    return found


def _without_residue(page: bytes) -> bytes | None:
    """Give a page with zeros in its gap; None where there are only zeros already, or where it is no page of a tree."""
    kind = page[0]
    if kind not in _LEAVES and kind not in _INNER:
        return None
    begin = (8 if kind in _LEAVES else 12) + 2 * int.from_bytes(page[3:5], "big")
    end = int.from_bytes(page[5:7], "big")
    if not begin <= end <= PAGE_SIZE - CHECKSUM_BYTES or page.count(0, begin, end) == end - begin:
        return None
    return page[:begin] + bytes(end - begin) + page[end:]


@contextlib.contextmanager
def _opened(path: str) -> Generator[apsw.VFSFile]:
    file = apsw.VFSFile(checksum_vfs() or "", path, [_OPEN, 0])
    try:
        yield file
    finally:
        file.xClose()
