"""What is stored, with its secrets masked: each value of the store, given to a redactor where it holds words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from recollect.export.redaction import Redactor
from recollect.model import blob, json
from recollect.model.part import Part
from recollect.model.session import Session
from recollect.op import Row
from recollect.ops.transfer import BLOBS, ERROR, METADATA, NATIVE, PARTS

_WORDS = (
    "title", "task", "provider", "provider_config", "model", "working_dir", "system_prompt", "external_id",
)  # fmt: skip
_Parts = tuple[Part, ...]


def session(value: Session, redactor: Redactor | None) -> Session:
    """Mask what is known about a session. Its id stays: it is how it is found."""
    if redactor is None:
        return value
    told: dict[str, Any] = {name: redactor.value(getattr(value, name)) for name in (*_WORDS, "metadata")}
    return msgspec.structs.replace(value, **told)


def message(row: Row, payloads: Mapping[str, bytes], redactor: Redactor) -> tuple[Row, dict[str, bytes]]:
    """Mask a message, with what was taken out of its parts: the row, and the payloads that it refers to now."""
    whole = json.decode(row[PARTS])
    if row[BLOBS] is not None:
        whole = blob.attach(whole, payloads)
    parts: tuple[Part, ...] = msgspec.convert(redactor.value(whole), _Parts)
    thinned, found = blob.detach(parts)
    masked = list(row)
    masked[PARTS] = json.encode(thinned)
    masked[BLOBS] = None if found is None else json.encode(sorted(found))
    for index in (ERROR, METADATA, NATIVE):
        masked[index] = _json(row[index], redactor)
    return tuple(masked), found or {}


def _json(text: str | None, redactor: Redactor) -> str | None:
    return None if text is None else json.encode(redactor.value(json.decode(text)))


def turn(row: Row, redactor: Redactor | None) -> Row:
    """Mask the error of a turn."""
    return row if redactor is None else (*row[:8], _json(row[8], redactor), *row[9:])


def call(row: Row, redactor: Redactor | None) -> Row:
    """Mask the error of a tool call."""
    return row if redactor is None else (*row[:13], redactor.value(row[13]))


def compaction(row: Row, redactor: Redactor | None) -> Row:
    """Mask the summary of a compaction."""
    return row if redactor is None else (*row[:5], redactor.value(row[5]), *row[6:])


def snapshot(row: Row, redactor: Redactor | None) -> Row:
    """Mask the content of a snapshot."""
    return row if redactor is None else (row[0], _json(row[1], redactor), *row[2:])
