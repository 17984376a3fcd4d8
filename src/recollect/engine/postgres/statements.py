"""The statement registry: SQL with numbered parameters, variants without unused filters, and multi-row inserts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from recollect import sql
from recollect.engine.postgres.adapters import EscapedColumn

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
        "escaped_columns",
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
        self.escaped_columns: list[EscapedColumn] | None = None  # known after the first run
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

    def values(self, params: Mapping[str, Any]) -> list[Any]:
        """Return the parameters in the order of their numbers."""
        params = self._with_defaults(params)
        return [params[name] for name in self.names]

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

    def split_rows(self, rows: Sequence[Sequence[Any]]) -> list[tuple[PreparedStatement, list[Any]]]:
        """Return the statements that write all rows."""
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
                [value for row in group for value in row],
            )
            for statement, group in groups
        ]


class LockStatement(PreparedStatement):
    """The lock to take before a statement. A NOWAIT lock has a waiting form, for a transaction that takes it first."""

    __slots__ = ("waiting",)

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name, text)
        waiting_text = text.removesuffix(" NOWAIT")
        self.waiting = None if waiting_text == text else PreparedStatement(f"{name}_waiting", waiting_text)


# The lock that an operation which writes takes before a query, so that the rows do not change after it has read them:
# a query and its lock are two statements, because under READ COMMITTED a query that waits for a lock returns rows of
# its older snapshot. In the same round trip.
LOCKS = {
    name: f"{name}_lock"
    for name in (
        "blobs_recount", "branches_of_tree", "message_for_update", "messages_rows",
        "search_changed_titles", "search_indexed", "search_indexed_to", "search_mark", "search_title_get",
        "session_by_key", "session_get", "session_in_trash", "session_parent", "sessions_of_tree",
        "snapshots_outline", "turn_get",
    )
}  # fmt: skip

# The statement that sets planner settings or session variables for a query, in the same round trip.
SETTINGS = {
    **dict.fromkeys(
        (
            "messages_last", "messages_last_tuples", "sessions_by_activity", "sessions_by_activity_reversed",
            "sessions_by_creation", "sessions_by_creation_reversed", "sessions_by_deletion",
            "sessions_by_deletion_reversed", "sessions_by_folded_title", "sessions_by_folded_title_reversed",
            "sessions_of_id_prefix", "sessions_pinned_first",
        ),
        "settings_walk",
    ),
    **{
        name: f"{name}_settings"
        for name in (
            "owners_all", "search_backlog", "search_contains", "search_density", "search_messages", "search_newest",
            "search_rare", "search_terms_with", "search_titles_match",
        )
    },
}  # fmt: skip


class StatementRegistry:
    """All statements by name, built on first use."""

    def __init__(self) -> None:
        self._texts = sql.queries("postgres")
        self._statements: dict[str, PreparedStatement] = {}
        self._locks: dict[str, LockStatement] = {}
        self._multi_row: dict[str, MultiRowStatement] = {}

    def statement(self, name: str) -> PreparedStatement:
        """Return a statement by its name."""
        statement = self._statements.get(name)
        if statement is None:
            statement = self._statements[name] = PreparedStatement(name, self._texts[name])
        return statement

    def text(self, name: str) -> str:
        """Return the text of a query."""
        return self._texts[name]

    def lock(self, name: str) -> LockStatement | None:
        """Return the lock to take before a query, or None."""
        lock_name = LOCKS.get(name)
        if lock_name is None:
            return None
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = LockStatement(lock_name, self._texts[lock_name])
        return lock

    def settings(self, name: str) -> PreparedStatement | None:
        """Return the statement that makes the settings for a query, with the same parameters, or None."""
        settings = SETTINGS.get(name)
        return None if settings is None else self.statement(settings)

    def multi_row(self, name: str) -> MultiRowStatement:
        """Return the form of a statement for many rows."""
        statement = self._multi_row.get(name)
        if statement is None:
            statement = self._multi_row[name] = MultiRowStatement(name, self._texts[name])
        return statement
