"""The statement registry: SQL with numbered parameters, variants without unused filters, and multi-row inserts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from recollect import sql
from recollect.engine.postgres.wire_codec import EncodedValue, encode_integers, encode_parameter, encode_texts

# `:name`, `:rows.2::text[]` or `:turn.2`. The lookbehind skips the casts, `::text`.
_NAMED_PARAMETER = re.compile(r"(?<!:):([a-z_]+(?:\.\d+(?:::(?:text|bigint)\[\])?)?)")
_ROW_PARAMETER = re.compile(r"\?(\d+)")  # `?1`: the first value of a row, in a query for many rows
_OPTIONAL_CONDITION = re.compile(r"\(:([a-z_]+)::[a-z]+ IS NULL OR ")  # the beginning of an optional condition
_WRITE_KEYWORDS = ("INSERT", "UPDATE", "DELETE")
_ROWS_PER_INSERT = 8  # rows of one INSERT, which saves statements. Each width up to it is another prepared statement
_MAX_ROWS_PER_INSERT = 512  # rows of one column, such as keys, which come by the thousand
_MAX_VARIANTS = 64  # of a statement. The server keeps every variant that a connection has used prepared, in memory


class PreparedStatement:
    """A query in the server's form, with the names of its parameters in their order.

    A query may have optional conditions, `(:tool::text IS NULL OR ...)`. Each combination of given parameters has a
    variant without the conditions that do not apply: the server would evaluate them for each row, and set up the
    subqueries in them on each run.
    """

    __slots__ = (
        "_absent_parameters",
        "_optional_parameters",
        "_source",
        "_variants",
        "columns",
        "name",
        "names",
        "returns",
        "text",
    )

    def __init__(self, name: str, text: str) -> None:
        self.name = name.encode()
        self.names: list[str] = []
        self.text = _NAMED_PARAMETER.sub(self._number_parameter, text).encode()
        self.returns = _returns_rows(text)
        self.columns: Any = None  # how to decode its columns; known after the first run
        # Only statements with several conditions, the filters of lists and searches, have variants; none of them has
        # arrays, which a variant could not encode.
        optional = tuple(dict.fromkeys(_OPTIONAL_CONDITION.findall(text)))
        self._optional_parameters = optional if len(optional) > 1 and "." not in "".join(self.names) else ()
        # NULL for the parameters that are absent from the call.
        self._absent_parameters: dict[str, None] = dict.fromkeys(self._optional_parameters)
        self._source = text
        self._variants: dict[tuple[bool, ...], PreparedStatement] = {}

    def _number_parameter(self, match: re.Match[str]) -> str:
        name = match[1]
        if name not in self.names:
            self.names.append(name)
        _, colons, kind = name.partition("::")  # `rows.2::text[]`: the cast belongs to the name, and stays in the text
        return f"${self.names.index(name) + 1}{colons}{kind}"

    def values(self, params: Mapping[str, Any]) -> list[EncodedValue]:
        """Return the encoded parameters in the order of their numbers."""
        params = self._with_defaults(params)
        return [encode_parameter(params[name]) for name in self.names]

    def _with_defaults(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parameters with NULL for the optional ones that are absent."""
        return {**self._absent_parameters, **params} if self._absent_parameters else params

    def variant_for(self, params: Mapping[str, Any]) -> PreparedStatement:
        """Return the variant of the statement for these parameters."""
        if not self._optional_parameters:
            return self
        present = tuple([params.get(name) is not None for name in self._optional_parameters])
        variant = self._variants.get(present)
        if variant is None:
            if len(self._variants) >= _MAX_VARIANTS:
                # The full query works for every combination.
                return self
            number = sum(1 << bit for bit, is_present in enumerate(present) if is_present)
            absent = {
                name for name, is_present in zip(self._optional_parameters, present, strict=True) if not is_present
            }
            variant = self._variants[present] = PreparedStatement(
                f"{self.name.decode()}_{number:x}", _drop_conditions(self._source, absent)
            )
            variant._absent_parameters = dict.fromkeys(absent.intersection(variant.names))
        return variant


def _drop_conditions(text: str, absent: set[str]) -> str:
    """Remove the conditions of absent parameters, and from the others the test whether they are NULL.

    A condition ends at its closing parenthesis and may contain further conditions. No query has a parenthesis in a
    string literal, so counting them is enough.
    """
    match = _OPTIONAL_CONDITION.search(text)
    if match is None:
        return text
    end, depth = match.end(), 1
    while depth:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    inner = "true" if match[1] in absent else f"({_drop_conditions(text[match.end() : end - 1], absent)})"
    return text[: match.start()] + inner + _drop_conditions(text[end:], absent)


def _returns_rows(text: str) -> bool:
    """Return whether a statement returns rows: the engine does not wait for others. If unsure, return True."""
    if "RETURNING" in text:
        return True
    return not (text.startswith(_WRITE_KEYWORDS) or (text.startswith("WITH ") and "SELECT" not in text))


class FinalStatement(PreparedStatement):
    """A statement that does all the work of an operation, which then usually ends (`-- final:` in the SQL files).

    Messages are sent as one array per column, and the server assigns their positions. `:rows.2::text[]` is the array of
    the second value of each of `rows`; `:turn.2` is the second value of `turn`. `lookup` finds the row that it wrote in
    a given transaction, `probe` any row that it may have written.
    """

    __slots__ = ("_parameter_sources", "lookup", "probe", "without_tool_calls")

    def __init__(self, name: str, text: str, without_tool_calls: str | None, lookup: str, probe: str = "") -> None:
        super().__init__(name, text)
        self.without_tool_calls = (
            None
            if without_tool_calls is None
            else FinalStatement(f"{name}_without_calls", without_tool_calls, None, lookup, probe)
        )
        self.lookup = PreparedStatement(f"{name}_lookup", lookup) if lookup else None
        self.probe: FinalStatement | None = FinalStatement(f"{name}_probe", probe, None, "") if probe else None
        self._parameter_sources = [_parameter_source(parameter) for parameter in self.names]

    def variant_for(self, params: Mapping[str, Any]) -> PreparedStatement:
        """Return the shorter variant if there are no tool calls, or the one for the optional parameters."""
        if self.without_tool_calls is None:
            return super().variant_for(params)
        return self if params["calls"] else self.without_tool_calls

    def values(self, params: Mapping[str, Any]) -> list[EncodedValue]:
        """Return the encoded parameters in the order of their numbers."""
        params = self._with_defaults(params)
        columns: dict[str, list[Any]] = {}
        values: list[EncodedValue] = []
        for name, index, encode_array in self._parameter_sources:
            if index is None:
                values.append(encode_parameter(params[name]))
            elif encode_array is None:
                values.append(encode_parameter(params[name][index]))
            else:
                if name not in columns:
                    columns[name] = list(zip(*params[name], strict=True))
                values.append(encode_array(columns[name][index]))
        return values


def _parameter_source(name: str) -> tuple[str, int | None, Callable[[Sequence[Any]], EncodedValue] | None]:
    """Return where a parameter comes from: its name, the index in each row, and the encoder of its array."""
    group, _, remainder = name.partition(".")
    number, _, kind = remainder.partition("::")
    encode_array = None if not kind else encode_texts if kind == "text[]" else encode_integers
    return group, int(number) - 1 if number else None, encode_array


class MultiRowStatement:
    """A query for many rows: an INSERT takes several rows per statement, any other query runs once per row."""

    __slots__ = ("_statements", "_wide_insert", "column_count")

    def __init__(self, name: str, text: str) -> None:
        self.column_count = max(int(number) for number in _ROW_PARAMETER.findall(text))
        head, values, remainder = text.partition(" VALUES ")
        row, conflict, tail = remainder.partition(" ON CONFLICT ")
        max_rows = _ROWS_PER_INSERT if values else 1
        self._statements: list[PreparedStatement] = []
        for width in range(1, max_rows + 1):
            statement = (
                f"{head} VALUES {self._rows(row, width)}{conflict}{tail}" if values else self._number_row(text, 0)
            )
            self._statements.append(PreparedStatement(f"{name}_{width}", statement))
        self._wide_insert: PreparedStatement | None = None
        if values and self.column_count == 1:  # rows of one column come by the thousand
            statement = f"{head} VALUES {self._rows(row, _MAX_ROWS_PER_INSERT)}{conflict}{tail}"
            self._wide_insert = PreparedStatement(f"{name}_{_MAX_ROWS_PER_INSERT}", statement)

    def _rows(self, row: str, width: int) -> str:
        return ", ".join(self._number_row(row, number) for number in range(width))

    def _number_row(self, text: str, row: int) -> str:
        return _ROW_PARAMETER.sub(lambda match: f"${int(match[1]) + row * self.column_count}", text)

    def split_rows(self, rows: Sequence[Sequence[Any]]) -> list[tuple[PreparedStatement, list[EncodedValue]]]:
        """Return the statements that write all rows. Values beyond the columns of the query are for other engines."""
        wide_rows = len(rows) // _MAX_ROWS_PER_INSERT * _MAX_ROWS_PER_INSERT if self._wide_insert is not None else 0
        groups: list[tuple[PreparedStatement | None, Sequence[Sequence[Any]]]] = [
            (self._wide_insert, rows[start : start + _MAX_ROWS_PER_INSERT])
            for start in range(0, wide_rows, _MAX_ROWS_PER_INSERT)
        ]
        max_rows = len(self._statements)
        groups += [(None, rows[start : start + max_rows]) for start in range(wide_rows, len(rows), max_rows)]
        return [
            (
                statement or self._statements[len(group) - 1],
                [encode_parameter(value) for row in group for value in row[: self.column_count]],
            )
            for statement, group in groups
        ]


class LockStatement(PreparedStatement):
    """The lock to take before a statement. A NOWAIT lock has a waiting form, for a transaction that takes it first."""

    __slots__ = ("waiting",)

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}_lock", text)
        waiting_text = text.removesuffix(" NOWAIT")
        self.waiting = None if waiting_text == text else PreparedStatement(f"{name}_lock_waiting", waiting_text)


class StatementRegistry:
    """All statements by name, built on first use."""

    def __init__(self) -> None:
        self._texts = sql.queries("postgres")
        self._locks = {name: LockStatement(name, text) for name, text in sql.locks("postgres").items()}
        self._pre_statements = {
            name: PreparedStatement(f"{name}_before", text) for name, text in sql.pre_statements("postgres").items()
        }
        self._without_tool_calls, self._lookups, self._probes = (
            sql.queries_without_tool_calls("postgres"),
            sql.final_query_lookups("postgres"),
            sql.write_probes("postgres"),
        )
        self._statements: dict[str, PreparedStatement] = {}
        self._multi_row: dict[str, MultiRowStatement] = {}

    def statement(self, name: str) -> PreparedStatement:
        """Return a statement by its name."""
        statement = self._statements.get(name)
        if statement is None:
            lookup = self._lookups.get(name)
            text = self._texts[name]
            if lookup is None:
                statement = PreparedStatement(name, text)
            else:
                statement = FinalStatement(
                    name, text, self._without_tool_calls.get(name), lookup, self._probes.get(name, "")
                )
            self._statements[name] = statement
        return statement

    def lock(self, name: str) -> LockStatement | None:
        """Return the lock to take before a statement, or None."""
        return self._locks.get(name)

    def pre_statement(self, name: str) -> PreparedStatement | None:
        """Return the statement to run before another one, with the same parameters, or None."""
        return self._pre_statements.get(name)

    def multi_row(self, name: str) -> MultiRowStatement:
        """Return the form of a statement for many rows."""
        statement = self._multi_row.get(name)
        if statement is None:
            statement = self._multi_row[name] = MultiRowStatement(name, self._texts[name])
        return statement
