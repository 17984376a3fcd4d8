"""The longest session ids with the longest owners fit into the indexes of the server."""

from __future__ import annotations

import random

import psycopg
import pytest

import recollect
from recollect.errors import InvalidValue

generator = random.Random(5)
ESCAPES = "".join(generator.choice("\0\x10") for _ in range(1_024))
"""Every character takes two bytes on the server."""

# 512 bytes as the server stores them; random, so that they cannot be compressed.
OWNERS = [
    "\U0001f600" * 128,
    "".join(chr(generator.randrange(0x10000, 0x20000)) for _ in range(128)),
    "".join(chr(generator.randrange(0x80, 0x800)) for _ in range(256)),
    "\x10" * 256,
    "".join(generator.choice("\x10\u00e9") for _ in range(256)),
]
IDS = [
    ESCAPES,
    "\0" * 1_024,
    "".join(generator.choice("\0\x10") + chr(generator.randrange(1, 0x80)) for _ in range(512)),
    "".join(chr(generator.randrange(0x10000, 0x20000)) for _ in range(256)),
]


@pytest.mark.parametrize("owner", OWNERS, ids=range(len(OWNERS)))
@pytest.mark.parametrize("id", IDS, ids=range(len(IDS)))
def test_the_longest_id_of_the_longest_owner(postgres, owner, id):
    with recollect.open(postgres, owner=owner) as store:
        store.session(id, title="T").append({"role": "user", "content": "x"})
        store.delete_session(id)
        store.session(id)
        store.delete_session(id)
        store.restore_session(id)
        assert store.find_session(id[:1_000]).id == id
        with store.watch(id, timeout=30) as watch:  # the payload of a notification has at most 8,000 bytes
            session = store.session(id)
            session.append({"role": "user", "content": "y"})
            assert next(change for change in watch if change.revision == session.revision).session == id


def test_index_entries_are_not_compressed(postgres):
    """Without compression, which depends on the text, the longest entry still fits."""
    owner, id = OWNERS[2], ESCAPES
    with recollect.open(postgres, owner=owner) as store:
        store.session(id)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("SELECT set_config('recollect.owner', %s, false)", (owner,))
        sizes = connection.execute("SELECT octet_length(owner), octet_length(id) FROM recollect.sessions").fetchone()
        assert sizes == (512, 2_048)
        connection.execute('CREATE TEMP TABLE entries (owner text COLLATE "C", id text COLLATE "C")')
        connection.execute("ALTER TABLE entries ALTER owner SET STORAGE EXTERNAL, ALTER id SET STORAGE EXTERNAL")
        connection.execute("CREATE INDEX entries_id ON entries (owner, id)")
        connection.execute("INSERT INTO entries SELECT owner, id FROM recollect.sessions")
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):  # the test would notice a longer one
            connection.execute("INSERT INTO entries SELECT owner, id || repeat('x', 200) FROM recollect.sessions")


def test_the_owner_is_limited_by_its_stored_size():
    for owner in ("\x10" * 257, "\x10" * 255 + "\u00e9\u00e9", "\x10" * 171 + "\U0001f600" * 85):
        with pytest.raises(InvalidValue, match="owner must have at most"):
            recollect.open(":memory:", owner=owner)
    recollect.open(":memory:", owner="\x10" * 256).close()
