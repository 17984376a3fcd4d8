"""Rows of the table `settings` of schema version 7, and the records that they become."""

from __future__ import annotations

import json

from recollect.engine.process import holder

_PRESENCE = {"session": "a", "surface": "web", "holder": holder(), "since": 1_000}
GRANT = {"server": "bank", "tool": "pay", "fingerprint": "f", "who": "", "session": None, "at": 5}
LEDGER = {"marks": {"offset": "7"}, "open": {}}

SETTINGS = {
    "theme": {"dark": True},
    "last_session": "a",
    "recollect.copy": {"source": "elsewhere", "done": True},
    "presence:p1": _PRESENCE,
    "presence:p\0\x10": _PRESENCE,
    "presence:": _PRESENCE,
    "presence;": "not a presence",
    "PRESENCE:p": "not a presence",
    "approvals": [GRANT],
    "approvals.waiting.0123": {"id": "1", "arguments": "SEKRET"},
    "approvals.answer.1": "once",
    "approvals.answer": "of a program",
    "bot:telegram:99": LEDGER,
    "bot:": LEDGER,
    "bot": "of a program",
    "web.models": ["demo"],
    "": "empty key",
    "nul\0in\x10the\x10p key\\000\\x00\x10": "\0\x10\ud800",
    "\0": 1,
    "\x01": 2,
    "'; DROP TABLE settings; --": None,
    "\u4e00" * 512: "long key",
}
"""Settings by key, as every version up to 7 could store them."""

RECORDS = {
    ("setting", "theme"): {"dark": True},
    ("agent.state", "last_session"): "a",
    ("recollect.copy", "journal"): {"source": "elsewhere", "done": True},
    ("recollect.presence", "p1"): _PRESENCE,
    ("recollect.presence", "p\0\x10"): _PRESENCE,
    ("recollect.presence", ""): _PRESENCE,
    ("setting", "presence;"): "not a presence",
    ("setting", "PRESENCE:p"): "not a presence",
    ("agent.approvals", "grants"): [GRANT],
    ("setting", "approvals.answer"): "of a program",
    ("bot.ledger", "telegram:99"): LEDGER,
    ("bot.ledger", ""): LEDGER,
    ("setting", "bot"): "of a program",
    ("web.models", "recent"): ["demo"],
    ("setting", ""): "empty key",
    ("setting", "nul\0in\x10the\x10p key\\000\\x00\x10"): "\0\x10\ud800",
    ("setting", "\0"): 1,
    ("setting", "\x01"): 2,
    ("setting", "'; DROP TABLE settings; --"): None,
    ("setting", "\u4e00" * 512): "long key",
}
"""The values of the records by kind and key. Questions that wait for an approval are not kept."""

UPDATED_AT = 1_700_000_000_000  # milliseconds; the time of every setting


def setting_rows(owner):
    """Return the rows of the table for an owner: owner, key, value and time."""
    return [(owner, key, json.dumps(value), UPDATED_AT) for key, value in SETTINGS.items()]


def check_records(store):
    """Check that a migrated store has the records, and nothing else of the settings."""
    kinds = {kind for kind, _ in RECORDS}
    records = [record for kind in kinds for record in store.records.list(kind, limit=1_000)]
    assert {(record.kind, record.key): record.value for record in records} == RECORDS
    for record in records:
        assert store.records.get(record.kind, record.key) == record
        assert (record.revision, record.created_at_ms, record.updated_at_ms) == (1, UPDATED_AT, UPDATED_AT)
    assert store.records.put("setting", "theme", "light", expected=1).revision == 2
    assert store.records.delete("setting", "")
    assert store.records.delete("setting", "\u4e00" * 512)


def check_users_of_records(store):
    """Check that presences of a migrated store work."""
    session = store.session("a")
    assert sorted(presence.id for presence in session.presence.list()) == ["", "p\0\x10", "p1"]
    assert session.presence.stay("p\0\x10")
    session.presence.leave("p1")
    assert sorted(presence.id for presence in session.presence.list()) == ["", "p\0\x10"]
