"""The rows of a result: many of them by the driver's compiled half, which reads them in a third of the time."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import abc, pq
from psycopg.abc import AdaptContext
from psycopg.adapt import AdaptersMap, Loader, Transformer

from recollect.engine.postgres.book import Statement
from recollect.engine.postgres.text import BYTES, RAW, TEXT, marks, reader
from recollect.op import Row

_COMPILED = pq.__impl__ != "python"
_FEW = 8  # below it, setting the driver up costs more than it spares
_KNOWN = frozenset({16, 20, 21, 23, 25, 114, 701, RAW})  # what the driver reads as we do: no numeric, no bytea


class _Adapters(AdaptersMap):
    """The driver's own readers, with JSON left as text and what is varchar left as bytes.

    The driver's compiled half has a reader for bytes that come as they are meant. One of ours would be called for each
    row, which took as long as all the rest of it.
    """

    def __init__(self) -> None:
        super().__init__(psycopg.adapters)
        for format in (pq.Format.TEXT, pq.Format.BINARY):
            self.register_loader("json", self.get_loader(TEXT, format) or Loader)

    def get_loader(self, oid: int, format: pq.Format) -> type[abc.Loader] | None:
        """Give the reader of a type."""
        return super().get_loader(BYTES, pq.Format.BINARY) if oid == RAW else super().get_loader(oid, format)


class _Context(AdaptContext):
    @property
    def adapters(self) -> AdaptersMap:
        return _ADAPTERS

    @property
    def connection(self) -> None:
        return None


_ADAPTERS = _Adapters()


class Columns:
    """What is known of a statement's columns when it has first been run.

    `binary` from when it first had many rows: then numbers come as the server has them, which the driver's compiled
    half reads in half the time of digits. By hand they take longer, so what gives a row or two is left as it was.
    """

    __slots__ = ("binary", "compiled", "marked", "read", "read_binary")

    def __init__(self, result: pq.abc.PGresult) -> None:
        kinds = [result.ftype(number) for number in range(result.nfields)]
        self.read = [reader(kind) for kind in kinds]
        self.compiled = _COMPILED and _KNOWN.issuperset(kinds)
        self.read_binary = [reader(kind, binary=True) for kind in kinds] if self.compiled else []
        self.marked = [
            (number, operator.itemgetter(number), *marks[kind]) for number, kind in enumerate(kinds) if kind in marks
        ]
        self.binary = False


class Rows:
    """Reads results, one at a time."""

    def __init__(self) -> None:
        self._transformer = Transformer(_Context())

    def of(self, statement: Statement, result: pq.abc.PGresult) -> list[Row]:
        """Give the rows of a result."""
        columns: Columns | None = statement.columns
        if columns is None:
            columns = statement.columns = Columns(result)
        count = result.ntuples
        if not count:
            return []
        if count < _FEW or not columns.compiled:
            if columns.binary and result.fformat(0) == pq.Format.BINARY:
                return _by_hand(result, columns.read_binary)
            return _by_hand(result, columns.read)
        columns.binary = True
        self._transformer.set_pgresult(result)
        rows: list[Row] = self._transformer.load_rows(0, count, tuple)
        for number, cell, mark, meant in columns.marked:
            if mark in "".join(filter(None, map(cell, rows))):  # the whole column at once
                rows = [(*row[:number], row[number] and meant(row[number]), *row[number + 1 :]) for row in rows]
        return rows


def _by_hand(result: pq.abc.PGresult, columns: list[Callable[[bytes], Any] | None]) -> list[Row]:
    count, value = result.ntuples, result.get_value
    if count == 1:
        return [tuple([_cell(value(0, number), read) for number, read in enumerate(columns)])]
    whole = range(count)  # column by column, which takes half the time of row by row
    return list(zip(*[_column([value(row, n) for row in whole], read) for n, read in enumerate(columns)], strict=True))


def _cell(data: bytes | None, read: Callable[[bytes], Any] | None) -> Any:
    return data if data is None or read is None else read(data)


def _column(cells: list[bytes | None], read: Callable[[bytes], Any] | None) -> list[Any]:
    if read is None or cells.count(None) == len(cells):
        return cells
    return [None if data is None else read(data) for data in cells]
