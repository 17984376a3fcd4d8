"""The statements of PostgreSQL, ready to be sent: parameters by number, and what is known of each before it is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from recollect import sql
from recollect.engine.postgres.text import Value, integers, texts, written

_NAMED = re.compile(r"(?<!:):([a-z_]+(?:\.\d+(?:::(?:text|bigint)\[\])?)?)")
_IN_ROW = re.compile(r"\?(\d+)")
_OPTIONAL = re.compile(r"\(:([a-z_]+)::[a-z]+ IS NULL OR ")
_CHANGES = ("INSERT", "UPDATE", "DELETE")
_WIDTH = 8
_WIDEST = 512
_FORMS = 64
"""Forms of a statement that are kept; a connection has the server keep each that it used."""


class Statement:
    """A query as the server takes it, with the names of its parameters in their order.

    Of a query with several conditions that are there for some parameters only, `(:tool::text IS NULL OR ...)`, each way
    to fill them has a form of its own, without the conditions that say nothing. The server would look at each of them
    for each row, and set up what they read each time that it is run.
    """

    __slots__ = ("_forms", "_missing", "_optional", "_whole", "columns", "name", "names", "returns", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name.encode()
        self.names: list[str] = []
        self.text = _NAMED.sub(self._numbered, text).encode()
        self.returns = _returns(text)
        self.columns: Any = None  # how to read its columns, known when it has first been run
        optional = tuple(dict.fromkeys(_OPTIONAL.findall(text)))
        self._optional = optional if len(optional) > 1 and "." not in "".join(self.names) else ()
        self._missing: dict[str, None] = dict.fromkeys(self._optional)  # what stands for those that are not given
        self._whole = text
        self._forms: dict[tuple[bool, ...], Statement] = {}

    def _numbered(self, found: re.Match[str]) -> str:
        name = found[1]
        if name not in self.names:
            self.names.append(name)
        _, many, kind = name.partition("::")  # an array says what it is an array of
        return f"${self.names.index(name) + 1}{many}{kind}"

    def values(self, params: Mapping[str, Any]) -> list[Value]:
        """Give the parameters in their order, as they are sent."""
        params = self._filled(params)
        return [written(params[name]) for name in self.names]

    def _filled(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Give the parameters with those that need not be given."""
        return {**self._missing, **params} if self._missing else params

    def fitting(self, params: Mapping[str, Any]) -> Statement:
        """Give the form of it that these parameters need."""
        if not self._optional:
            return self
        given = tuple([params.get(name) is not None for name in self._optional])
        made = self._forms.get(given)
        if made is None:
            if len(self._forms) >= _FORMS:
                return self
            number = sum(1 << place for place, there in enumerate(given) if there)
            absent = {name for name, there in zip(self._optional, given, strict=True) if not there}
            made = self._forms[given] = Statement(f"{self.name.decode()}_{number:x}", _without(self._whole, absent))
            made._missing = dict.fromkeys(absent.intersection(made.names))
        return made


def _without(text: str, absent: set[str]) -> str:
    """Leave out the conditions of parameters that are not given, and of the others that they may not be."""
    found = _OPTIONAL.search(text)
    if found is None:
        return text
    end, depth = found.end(), 1
    while depth:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    inner = "true" if found[1] in absent else f"({_without(text[found.end() : end - 1], absent)})"
    return text[: found.start()] + inner + _without(text[end:], absent)


def _returns(text: str) -> bool:
    """Whether a statement has rows to give. What only changes need not be waited for. When in doubt it has."""
    if "RETURNING" in text:
        return True
    return not (text.startswith(_CHANGES) or (text.startswith("WITH ") and "SELECT" not in text))


class Whole(Statement):
    """A query that does all of what an operation is about, which then mostly ends.

    `:rows.2::text[]` is the second value of each of `rows`, as an array, and `:turn.2` the second value of `turn`.
    """

    __slots__ = ("_parts", "brief", "recall", "traces")

    def __init__(self, name: str, text: str, brief: str | None, recall: str, traces: str = "") -> None:
        super().__init__(name, text)
        self.brief = None if brief is None else Whole(f"{name}_brief", brief, None, recall, traces)
        self.recall = Statement(f"{name}_recall", recall) if recall else None
        self.traces: Whole | None = Whole(f"{name}_traces", traces, None, "") if traces else None
        self._parts = [_part(each) for each in self.names]

    def fitting(self, params: Mapping[str, Any]) -> Statement:
        """Give the form of it that these parameters need."""
        if self.brief is None:
            return super().fitting(params)
        return self if params["calls"] else self.brief

    def values(self, params: Mapping[str, Any]) -> list[Value]:
        """Give the parameters in their order, as they are sent."""
        params = self._filled(params)
        columns: dict[str, list[Any]] = {}
        made: list[Value] = []
        for name, number, array in self._parts:
            if number is None:
                made.append(written(params[name]))
            elif array is None:
                made.append(written(params[name][number]))
            else:
                if name not in columns:
                    columns[name] = list(zip(*params[name], strict=True))
                made.append(array(columns[name][number]))
        return made


def _part(name: str) -> tuple[str, int | None, Callable[[Sequence[Any]], Value] | None]:
    """Say where a parameter is taken from: its name, the place in a row, and how an array of it is written."""
    group, _, rest = name.partition(".")
    number, _, kind = rest.partition("::")
    array = None if not kind else texts if kind == "text[]" else integers
    return group, int(number) - 1 if number else None, array


class Many:
    """A query for many rows: an INSERT takes some at once, anything else is run for each."""

    __slots__ = ("_widest", "_widths", "count")

    def __init__(self, name: str, text: str) -> None:
        self.count = max(int(number) for number in _IN_ROW.findall(text))
        head, values, rest = text.partition(" VALUES ")
        row, conflict, tail = rest.partition(" ON CONFLICT ")
        most = _WIDTH if values else 1
        self._widths: list[Statement] = []
        for width in range(1, most + 1):
            whole = f"{head} VALUES {self._rows(row, width)}{conflict}{tail}" if values else self._placed(text, 0)
            self._widths.append(Statement(f"{name}_{width}", whole))
        self._widest: Statement | None = None
        if values and self.count == 1:  # rows so small come by the thousand
            whole = f"{head} VALUES {self._rows(row, _WIDEST)}{conflict}{tail}"
            self._widest = Statement(f"{name}_{_WIDEST}", whole)

    def _rows(self, row: str, width: int) -> str:
        return ", ".join(self._placed(row, number) for number in range(width))

    def _placed(self, text: str, row: int) -> str:
        return _IN_ROW.sub(lambda found: f"${int(found[1]) + row * self.count}", text)

    def cut(self, rows: Sequence[Sequence[Any]]) -> list[tuple[Statement, list[Value]]]:
        """Give the statements that write all the rows; what a row has beyond the parameters is for other engines."""
        wide = len(rows) // _WIDEST * _WIDEST if self._widest is not None else 0
        cuts: list[tuple[Statement | None, Sequence[Sequence[Any]]]] = [
            (self._widest, rows[start : start + _WIDEST]) for start in range(0, wide, _WIDEST)
        ]
        most = len(self._widths)
        cuts += [(None, rows[start : start + most]) for start in range(wide, len(rows), most)]
        return [
            (wide_one or self._widths[len(some) - 1], [written(value) for row in some for value in row[: self.count]])
            for wide_one, some in cuts
        ]


class Lock(Statement):
    """What is locked before a statement. One that does not wait has a form that does, to be sent ahead of all."""

    __slots__ = ("waiting",)

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}_lock", text)
        patient = text.removesuffix(" NOWAIT")
        self.waiting = None if patient == text else Statement(f"{name}_lock_waiting", patient)


class Book:
    """Every statement by its name, made when it is first used."""

    def __init__(self) -> None:
        self._texts = sql.queries("postgres")
        self._locks = {name: Lock(name, text) for name, text in sql.locks("postgres").items()}
        self._befores = {name: Statement(f"{name}_before", text) for name, text in sql.befores("postgres").items()}
        self._briefs, self._ends, self._traces = sql.briefs("postgres"), sql.ends("postgres"), sql.traces("postgres")
        self._made: dict[str, Statement] = {}
        self._many: dict[str, Many] = {}

    def statement(self, name: str) -> Statement:
        """Give a statement by its name."""
        made = self._made.get(name)
        if made is None:
            recall = self._ends.get(name)
            text = self._texts[name]
            if recall is None:
                made = Statement(name, text)
            else:
                made = Whole(name, text, self._briefs.get(name), recall, self._traces.get(name, ""))
            self._made[name] = made
        return made

    def lock(self, name: str) -> Lock | None:
        """Give what is to be locked before a statement, if anything is."""
        return self._locks.get(name)

    def before(self, name: str) -> Statement | None:
        """Give what is to be run before a statement, with its parameters, if anything is."""
        return self._befores.get(name)

    def many(self, name: str) -> Many:
        """Give a statement for many rows by its name."""
        made = self._many.get(name)
        if made is None:
            made = self._many[name] = Many(name, self._texts[name])
        return made
