"""A missing payload is an error, not an empty text."""

from __future__ import annotations

import base64

import apsw
import pytest

import recollect


def test_a_missing_payload_is_damage(tmp_path):
    path = tmp_path / "recollect.db"
    data = base64.b64encode(bytes(range(256)) * 40).decode()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    with recollect.open(path) as store:
        session = store.session("a")
        session.append({"role": "user", "content": [image]}, format="anthropic")
        session.append({"role": "user", "content": "next"})
    raw = apsw.Connection(str(path))
    assert raw.execute("SELECT count(*) FROM blobs").fetchall() == [(1,)]
    raw.execute("DELETE FROM blobs")
    raw.close()
    with recollect.open(path) as store:
        session = store.session("a")
        for read in (session.messages, session.history, lambda: session.message(1)):
            with pytest.raises(recollect.errors.Corrupted, match=r"1\.1"):
                read()
        assert session.messages(1)[0].text == "next"
        session.append({"role": "user", "content": "continues"})
