"""The ranking function of search: BM25 with weights that are passed with the query.

For each search, SQLite's bm25() counts all messages that contain each word. Here the caller has put the counts into the
weights, so only the ranked messages are read. The average length of a message is a constant: an average of the
store would change with each append, and a hit would rank differently on the next page.
"""

from __future__ import annotations

import functools
from typing import Any

import apsw

_SATURATION = 1.2  # k1 of BM25: how fast further occurrences of a word stop counting. The usual value
_LENGTH_WEIGHT = 0.75  # b of BM25: how much the length of a message counts. The usual value
_AVERAGE_LENGTH = 100  # words per message: avgdl of BM25
_COLUMN_WEIGHTS = (1.0, 0.6, 0.4, 0.0)  # text, tool calls, tool results, tags: a text ranks above a tool's output


@functools.lru_cache(64)
def _phrase_weights(text: str) -> tuple[tuple[int, float], ...]:
    """Parse the weights of a query's phrases; those of weight 0 are left out."""
    phrases = enumerate(map(float, text.split(",")))
    return tuple((phrase, weight) for phrase, weight in phrases if weight)


def rank(api: apsw.FTS5ExtensionApi, *weights: Any) -> float:
    """Return the rank of a message; lower is better. `weights` is one text: the phrase weights, separated by commas."""
    saturation = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * api.column_size() / _AVERAGE_LENGTH)
    score = 0.0
    for phrase, weight in _phrase_weights(str(weights[0])):
        count = sum(
            len(api.phrase_column_offsets(phrase, column)) * _COLUMN_WEIGHTS[column]
            for column in api.phrase_columns(phrase)
        )
        if count:
            score += weight * count * (_SATURATION + 1) / (count + saturation)
    return -score


def register_ranking(connection: apsw.Connection) -> None:
    """Register the ranking function on a connection."""
    connection.register_fts5_function("recollect_rank", rank)
