"""Files out of the server and into it."""

from __future__ import annotations

import asyncio
import types

import pytest

from recollect.errors import InvalidValue, SessionNotFound
from recollect.server import transfer
from recollect.store_async import open_async


async def _pieces(data: bytes, size: int = 7):
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def _all(download: transfer.Download) -> bytes:
    return b"".join([piece async for piece in download.pieces])


def test_what_goes_out_comes_in(tmp_path):
    async def work():
        async with open_async(tmp_path / "a.db") as store, open_async(tmp_path / "b.db") as other:
            here, there = types.SimpleNamespace(store=store), types.SimpleNamespace(store=other)
            session = await store.session("a/b:1", title='Pläne "x"/\r\n../y')
            await session.append([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}])
            await store.session("second")
            for format in transfer.TYPES:
                download = await transfer.outgoing(here, ["a/b:1"], format)
                assert download.name == f"Pläne x y.{format}"
                assert "\r" not in download.disposition
                assert download.disposition.isascii()
                content = await _all(download)
                assert b"Hello" in content
                if format.startswith("json"):
                    report = await transfer.incoming(there, _pieces(content))
                    assert report.created + report.unchanged == ["a/b:1"]
            everything = await transfer.outgoing(here, None, "jsonl")
            assert everything.name.startswith("recollect 2")
            report = await transfer.incoming(there, _pieces(await _all(everything), 1 << 16))
            assert (report.created, report.unchanged) == (["second"], ["a/b:1"])
            assert [m.text for m in await (await other.session("a/b:1")).messages()] == ["Hello", "Hi"]

    asyncio.run(work())


def test_a_wrong_request_is_refused_before_the_first_byte(tmp_path):
    async def work():
        async with open_async(tmp_path / "a.db") as store:
            here = types.SimpleNamespace(store=store)
            with pytest.raises(SessionNotFound):
                await transfer.outgoing(here, ["missing"], "md")
            with pytest.raises(InvalidValue):
                await transfer.outgoing(here, None, "exe")
            with pytest.raises(InvalidValue):
                await transfer.incoming(here, _pieces(b"x"), on_conflict="burn")
            with pytest.raises(InvalidValue, match="at most 10 bytes"):
                await transfer.incoming(here, _pieces(b"x" * 11), largest=10)

    asyncio.run(work())


def test_an_export_through_the_page_has_the_times_of_the_browser(server, api):
    api.put("/sessions/zoned")
    kept = api.post("/sessions/zoned/messages", json={"messages": {"role": "user", "content": "Hello"}})
    assert kept.status_code == 201, kept.text
    headers = {"cookie": "recollect-zone=Asia/Kolkata|330"}
    for format in ("md", "html"):
        asked = {"format": format, "session": "zoned"}
        assert "+05:30" in api.get(f"{server.url}/page/export", params=asked, headers=headers).text
