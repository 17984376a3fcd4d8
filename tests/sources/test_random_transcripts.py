"""Transcripts with random damage, imported into a store: whole, again, and in two steps as the file grows.

For any damage, the import does not fail, the original comes back byte for byte, another import changes
nothing, the store is sound, and every provider's history can be written.
"""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
from transcript_checks import ODD_VALUES, damaged, places

import recollect
from recollect.errors import NotFound
from recollect.sync import ImportOptions, import_files
from recollect.sync.native import read_originals

FIXTURES = Path(__file__).parent / "fixtures"
FOLDERS = {"claude-code": ("claude_code",), "codex": ("codex", "codex_0169")}
SEEDS = range(12)  # per tool, which take 10 seconds
FORMATS = ("anthropic", "openai", "openai-responses", "ai-sdk")
RAW_LINES = [
    b"\xff\xfe\x00no text", b"null", b"[]", b"", b"{}", b"\0" * 50, b"[" * 10_000, b'{"type":NaN}',
    b'{"deep":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001, b'{"type":"user","message":{"content":"caf\xe9"}}',
]  # fmt: skip
CLAUDE_LINES = [
    b'{"type":"user","uuid":"d\\ud800","parentUuid":null,"sessionId":"s","message":{"content":"lone \\ud800"}}',
    b'{"type":"system","subtype":"compact_boundary","uuid":"cb","parentUuid":null,"logicalParentUuid":"nowhere"}',
    b'{"type":"user","uuid":"su","parentUuid":"cb","isCompactSummary":true,"message":{"content":"The summary"}}',
]
CODEX_LINES = [
    b'{"type":"event_msg","payload":{"type":"thread_rolled_back","num_turns":1}}',
    b'{"type":"compacted","payload":{"message":"The summary","replacement_history":[]}}',
    b'{"type":"response_item","payload":{"type":"custom_tool_call","call_id":"c9","name":"patch","input":"x"}}',
    b'{"type":"response_item","payload":{"type":"message","role":"assistant","content":[NaN]}}',
]


def iter_original_bytes(store, ids):
    """Yield the originals of sessions. A sub-agent in the file of its parent has none of its own."""
    for id in ids:
        with contextlib.suppress(NotFound):
            yield from (original for _, original in read_originals(store, id))


def damage(chance: random.Random, lines: list[bytes], extra: list[bytes]) -> bytes:
    """Return lines with a few changes, in one of the forms in which editors write text."""
    for _ in range(chance.choice([1, 2, 5])):
        index = chance.randrange(len(lines))
        match chance.randrange(5):
            case 0:
                lines.insert(index, chance.choice(RAW_LINES + extra))
            case 1:
                lines.insert(chance.randrange(len(lines)), lines[index])
            case 2:
                lines.insert(chance.randrange(len(lines)), lines.pop(index))
            case 3:
                lines[index] = lines[index][: chance.randrange(len(lines[index]) + 1)]
            case _:
                lines[index] = damage_value(chance, lines[index])
    text = chance.choice([b"\n", b"\r\n"]).join(lines) + chance.choice([b"\n", b""])
    return chance.choice([b"", b"", b"\xef\xbb\xbf"]) + text


def damage_value(chance: random.Random, line: bytes) -> bytes:
    """Return a line with another value at one place, or without it."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return line
    path = chance.choice(list(places(value)))
    delete = bool(path) and chance.random() < 0.3
    return json.dumps(damaged(value, path, chance.choice(ODD_VALUES), delete=delete)).encode()


def content_of(store: recollect.Store, ids: list[str]) -> dict[str, Any]:
    """Return what the sessions hold, except for times that the files do not name."""
    content: dict[str, Any] = {}
    for id in ids:
        session, details = store.session(id, create=False), store.get_session(id)
        assert details is not None
        paths = [session.messages(branch=branch.id) for branch in session.branches.list()]
        content[id] = {
            "fields": (details.title, details.model, details.working_dir, details.parent, details.metadata),
            "paths": sorted([message.key or "" for message in path] for path in paths),
            "active": [message.key for message in session.messages()],
            "messages": {
                message.key: (message.role, message.parts, message.state, message.model, message.output_tokens)
                for path in paths
                for message in path
            },
        }
    return content


def import_steps(folder: Path, name: str, steps: list[bytes]) -> tuple[recollect.Store, list[str]]:
    """Import a file as it grows. Return the store and the ids of its sessions."""
    (folder / "data").mkdir(parents=True)
    store = recollect.open(str(folder / "store.db"))
    ids: set[str] = set()
    for data in steps:
        (folder / "data" / name).write_bytes(data)
        report = import_files(store, [folder / "data"])
        assert not [note for note in report.notes if note.kind == "failed"]
        ids |= {item.session for item in report.conversations}
    return store, sorted(ids)


def check_whole(store: recollect.Store, folder: Path, ids: list[str], data: bytes) -> None:
    before = content_of(store, ids)
    for again in (False, True):
        report = import_files(store, [folder / "data"], ImportOptions(again=again))
        assert {item.outcome for item in report.conversations} <= {"unchanged"}
        assert content_of(store, ids) == before
    assert store.maintenance.check().ok
    for id in ids:
        for format in FORMATS:
            json.dumps(list(store.session(id, create=False).history(format)))
    if ids:
        assert data in list(iter_original_bytes(store, ids))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("tool", FOLDERS)
def test_damaged_transcripts(tmp_path: Path, tool: str, seed: int):
    chance = random.Random(f"{tool} {seed}")
    paths = sorted(path for folder in FOLDERS[tool] for path in (FIXTURES / folder).rglob("*.jsonl"))
    path = chance.choice([path for path in paths if path.name != "session_index.jsonl"])
    data = damage(chance, path.read_bytes().splitlines(), CLAUDE_LINES if tool == "claude-code" else CODEX_LINES)
    store, ids = import_steps(tmp_path / "whole", path.name, [data])
    with store:
        check_whole(store, tmp_path / "whole", ids, data)
        expected = content_of(store, ids)
    cut = chance.randrange(len(data) + 1)
    store, ids = import_steps(tmp_path / "steps", path.name, [data[:cut], data])
    with store:
        assert content_of(store, ids) == expected
