"""A transcript leads to the same conversation through RecollectSessionStore and through an import of its files."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from pathlib import Path

import pytest
from claude_agent_sdk import import_session_to_store

import recollect
from recollect.integrations.claude_agent_sdk import RecollectSessionStore
from recollect.sync import import_files

_FIXTURES = Path(__file__).parents[2] / "sources" / "fixtures" / "claude_code"
_ENTRY_FOLDERS = ("projects/-srv-project", "sdk-fork", "inline", "queue")
_FULL_OUTPUT = "claude-code:aaaaaaaa-0000-4000-8000-000000000002"
"""A conversation with an output of a tool that is in a file of its own, which the SDK does not pass on."""
_FORKS = ("22222222-2222-4333-8444-555555555555", "aaaaaaaa-0000-4000-8000-000000000003")
"""Conversations that begin with the messages of another one. They share those that come in one batch."""


@pytest.fixture
def config_folder(tmp_path, monkeypatch):
    """Return a configuration folder of Claude Code with the fixtures of its source."""
    folder = tmp_path / "claude"
    for name in _ENTRY_FOLDERS:
        shutil.copytree(_FIXTURES / name, folder / "projects" / name.rpartition("/")[2])
    for path in folder.rglob("*.jsonl"):
        path.write_bytes(b"".join(_select_lines(path.read_bytes().splitlines(keepends=True))))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder))
    return folder


def _select_lines(lines):
    """Yield the lines that the SDK can pass on: JSON, with a uuid that no earlier line has."""
    uuids = set()
    for line in lines:
        try:
            uuid = json.loads(line).get("uuid")
        except ValueError:
            continue
        if uuid is None or uuid not in uuids:
            uuids.add(uuid)
            yield line


def _replay(folder, url, seed):
    """Pass every transcript on to a store, as the SDK does for a session that is only on the disk."""

    async def main():
        generator = random.Random(seed)
        async with RecollectSessionStore.from_url(url) as sessions:
            paths = sorted(folder.glob("projects/*/*.jsonl"))
            for path in paths:
                size = 500 if path.stem in _FORKS else generator.randint(1, 9)
                await import_session_to_store(path.stem, sessions, batch_size=size)
            for path in paths:
                await import_session_to_store(path.stem, sessions, batch_size=4)  # again: nothing is new
                key = {"project_key": path.parent.name, "session_id": path.stem}
                entries = [json.loads(line) for line in path.read_text().splitlines()]
                entries_in_store = await sessions.load(key)
                assert _with_uuid(entries_in_store) == _with_uuid(entries)
                assert [entry for entry in entries if entry not in entries_in_store] == []

    asyncio.run(main())


def _with_uuid(entries):
    return [entry for entry in entries if "uuid" in entry]


def _read(url):
    """Return the conversations of a store, each with its messages."""
    conversations = {}
    with recollect.open(url) as store:
        assert store.maintenance.check().ok
        for info in store.list_sessions(500, delegates=None, archived=None):
            session = store.session(info.id, create=False)
            fields = {name: value for name, value in info.to_dict().items() if name not in ("revision", "updated_at")}
            messages = [message.to_dict() for message in session.messages()]
            conversations[info.id] = fields, messages, session.history("openai")
    return conversations


@pytest.mark.parametrize("seed", range(4))
def test_an_import_of_the_same_files_changes_nothing(url, tmp_path, config_folder, seed):
    files = str(tmp_path / "files.db")
    with recollect.open(files) as store:
        import_files(store, [config_folder])
    expected = _read(files)
    _replay(config_folder, url, seed)
    conversations = _read(url)
    assert conversations.keys() == expected.keys()
    assert len(expected) >= 5
    for id, conversation in conversations.items():
        if id != _FULL_OUTPUT:
            assert conversation == expected[id]
    with recollect.open(url) as store:
        report = import_files(store, [config_folder])
    outcomes = {item.session: item.outcome for item in report.conversations}
    assert {id for id, outcome in outcomes.items() if outcome != "unchanged"} == {_FULL_OUTPUT}
    assert _read(url) == expected


def test_entries_of_imported_files_change_nothing(url, config_folder):
    with recollect.open(url) as store:
        import_files(store, [config_folder])
    expected = _read(url)
    del expected[_FULL_OUTPUT]
    _replay(config_folder, url, 0)
    conversations = _read(url)
    del conversations[_FULL_OUTPUT]
    assert conversations == expected


def test_a_deleted_transcript_is_not_imported(url, config_folder):
    _replay(config_folder, url, 0)
    key = {"project_key": "-srv-project", "session_id": "11111111-2222-4333-8444-555555555555"}

    async def delete():
        async with RecollectSessionStore.from_url(url) as sessions:
            await sessions.delete(key)

    asyncio.run(delete())
    with recollect.open(url) as store:
        report = import_files(store, [config_folder])
        assert not [info for info in store.list_sessions(delegates=None) if key["session_id"] in info.id]
    assert {item.outcome for item in report.conversations if key["session_id"] in item.session} == {"deleted"}
