"""Export and import through the server."""

from __future__ import annotations

import asyncio
import types

import pytest

from recollect.errors import InvalidValue, SessionNotFound
from recollect.server import transfer
from recollect.store_async import open_async


async def _chunks(data: bytes, size: int = 7):
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def _read_all(download: transfer.ExportDownload) -> bytes:
    return b"".join([chunk async for chunk in download.pieces])


def test_export_and_import(tmp_path):
    async def scenario():
        async with open_async(tmp_path / "a.db") as store, open_async(tmp_path / "b.db") as other:
            source, target = types.SimpleNamespace(store=store), types.SimpleNamespace(store=other)
            session = await store.session("a/b:1", title='Pläne "x"/\r\n../y')
            await session.append([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}])
            await store.session("second")
            for format in transfer.EXPORT_TYPES:
                download = await transfer.start_export(source, ["a/b:1"], format)
                assert download.name == f"Pläne x y.{format}"
                assert "\r" not in download.disposition
                assert download.disposition.isascii()
                content = await _read_all(download)
                assert b"Hello" in content
                if format.startswith("json"):
                    report = await transfer.import_upload(target, _chunks(content))
                    assert report.created + report.unchanged == ["a/b:1"]
            full_export = await transfer.start_export(source, None, "jsonl")
            assert full_export.name.startswith("recollect 2")
            report = await transfer.import_upload(target, _chunks(await _read_all(full_export), 1 << 16))
            assert (report.created, report.unchanged) == (["second"], ["a/b:1"])
            assert [m.text for m in await (await other.session("a/b:1")).messages()] == ["Hello", "Hi"]

    asyncio.run(scenario())


def test_an_invalid_request_is_refused_before_the_first_byte(tmp_path):
    async def scenario():
        async with open_async(tmp_path / "a.db") as store:
            account = types.SimpleNamespace(store=store)
            with pytest.raises(SessionNotFound):
                await transfer.start_export(account, ["missing"], "md")
            with pytest.raises(InvalidValue):
                await transfer.start_export(account, None, "exe")
            with pytest.raises(InvalidValue):
                await transfer.import_upload(account, _chunks(b"x"), on_conflict="burn")
            with pytest.raises(InvalidValue, match="at most 10 bytes"):
                await transfer.import_upload(account, _chunks(b"x" * 11), max_size=10)

    asyncio.run(scenario())


def test_an_export_from_the_page_uses_the_time_zone_of_the_browser(server, api):
    api.put("/sessions/zoned")
    response = api.post("/sessions/zoned/messages", json={"messages": {"role": "user", "content": "Hello"}})
    assert response.status_code == 201, response.text
    headers = {"cookie": "recollect-zone=Asia/Kolkata|330"}
    for format in ("md", "html"):
        parameters = {"format": format, "session": "zoned"}
        assert "+05:30" in api.get(f"{server.url}/page/export", params=parameters, headers=headers).text
