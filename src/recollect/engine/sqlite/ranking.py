"""The order of hits: BM25 with weights that come with the query.

SQLite's own bm25() counts every message that has a word, for each word of each search, which takes longer the larger
the store is. Here the counts come with the weights, and only the messages that are ranked are looked at. The usual
length is a constant and not the average of the store: a hit must rank the same on the next page, whatever was appended
meanwhile.
"""

from __future__ import annotations

import functools
from typing import Any

import apsw

_SATURATION = 1.2
_LENGTH = 0.75
_USUAL_LENGTH = 100
_COLUMNS = (1.0, 0.6, 0.4, 0.0)  # said, asked of tools, answered by tools, tags


@functools.lru_cache(64)
def _weights(text: str) -> tuple[tuple[int, float], ...]:
    """Read the weights of a query's phrases, without those that weigh nothing."""
    given = enumerate(map(float, text.split(",")))
    return tuple((phrase, weight) for phrase, weight in given if weight)


def rank(api: apsw.FTS5ExtensionApi, *weights: Any) -> float:
    """Rank a message by the weights of the query's phrases, given as one text: the lower, the better."""
    room = _SATURATION * (1 - _LENGTH + _LENGTH * api.column_size() / _USUAL_LENGTH)
    score = 0.0
    for phrase, weight in _weights(str(weights[0])):
        count = sum(
            len(api.phrase_column_offsets(phrase, column)) * _COLUMNS[column] for column in api.phrase_columns(phrase)
        )
        if count:
            score += weight * count * (_SATURATION + 1) / (count + room)
    return -score


def register(connection: apsw.Connection) -> None:
    """Make the ranking known to a connection."""
    connection.register_fts5_function("recollect_rank", rank)
