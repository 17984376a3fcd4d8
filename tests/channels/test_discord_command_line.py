"""`recollect discord` as a person runs it: what it says where it can not start, signals, and a killed process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys

import pytest
from discord_bots import ADA
from fake_discord import TOKEN, FakeDiscord, until

import recollect

STORY = "Tell me 500 chapters"
SECRET = TOKEN.rpartition(".")[2]


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "talks.db")


class Process:
    """The command in a process of its own, and everything that it printed."""

    def __init__(self, running, reader):
        self.running, self._reader = running, reader
        self.printed = ""

    async def read(self):
        while chunk := await self._reader.read(4096):
            self.printed += chunk.decode(errors="replace")

    async def ended(self):
        async with asyncio.timeout(60):
            return await self.running.wait()


@contextlib.asynccontextmanager
async def started(fake, store, tmp_path, *, token=TOKEN, allow=str(ADA), **variables):
    (tmp_path / "config.toml").write_text("")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "RECOLLECT_CONFIG": str(tmp_path / "config.toml"),
        "RECOLLECT_DB": store,
        "RECOLLECT_DISCORD_BASE_URL": fake.url,
        "RECOLLECT_DISCORD_ALLOW": allow,
        **({"RECOLLECT_DISCORD_TOKEN": token} if token else {}),
        **variables,
    }
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from recollect.cli import main; main()", "discord",
        env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    process = Process(running, running.stdout)
    reading = asyncio.create_task(process.read())
    try:
        yield process
    finally:
        if running.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                running.kill()
            await running.wait()
        await reading


async def connected(fake, process):
    await until(lambda: fake.gateway.connected or process.running.returncode is not None, "the start", 60)
    assert process.running.returncode is None, process.printed


def everything(tmp_path):
    """Give every byte that was written to disk."""
    return b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


async def test_without_a_token_it_says_where_to_get_one(store, tmp_path):
    async with FakeDiscord() as fake, started(fake, store, tmp_path, token=None) as process:
        assert await process.ended() == 1
        await until(lambda: "RECOLLECT_DISCORD_TOKEN" in process.printed)
        assert "Traceback" not in process.printed


async def test_names_in_the_place_of_ids_are_pointed_out(store, tmp_path):
    async with FakeDiscord() as fake, started(fake, store, tmp_path, allow="ada#1234") as process:
        assert await process.ended() == 1
        await until(lambda: "Copy ID" in process.printed)


@pytest.mark.parametrize(("before", "debug"), [("wrong.", {}), ("wrong\n", {"RECOLLECT_DEBUG": "1"})])
async def test_a_wrong_token_is_told_and_not_shown(store, tmp_path, before, debug):
    async with FakeDiscord() as fake, started(fake, store, tmp_path, token=before + SECRET, **debug) as process:
        assert await process.ended() == 1
        await until(lambda: "does not accept the token" in process.printed)
        assert SECRET not in process.printed
        assert ("Traceback" in process.printed) == bool(debug)
    assert SECRET.encode() not in everything(tmp_path)


async def test_a_missing_intent_is_told(store, tmp_path):
    async with FakeDiscord() as fake:
        fake.gateway.content_allowed = False
        async with started(fake, store, tmp_path) as process:
            assert await process.ended() == 1
            await until(lambda: "Message Content Intent" in process.printed)
            assert "Traceback" not in process.printed


async def test_a_token_that_is_taken_back_meanwhile_is_told(store, tmp_path):
    async with FakeDiscord() as fake:
        fake.gateway.refuse_with = 4004
        async with started(fake, store, tmp_path) as process:
            assert await process.ended() == 1
            await until(lambda: "does not accept the token" in process.printed)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_stops_in_the_middle_of_an_answer_when_it_is_told_to(store, tmp_path, number):
    async with FakeDiscord() as fake:
        fake.user(ADA, "ada", shown="Ada")
        here = fake.dm(ADA)
        async with started(fake, store, tmp_path) as process:
            await connected(fake, process)
            fake.say(here, ADA, STORY)
            await until(lambda: any("Chapter 1." in text for text in fake.sent(here)), "the answer", 60)
            process.running.send_signal(number)
            assert await process.ended() == 0
            await until(lambda: "Everything that was said is kept" in process.printed)
            assert "discord.com/oauth2/authorize" in process.printed
            assert "Traceback" not in process.printed
        assert "cut off" in fake.sent(here)[-1]
        assert SECRET not in process.printed
    assert SECRET.encode() not in everything(tmp_path)


async def test_killed_in_the_middle_of_an_answer_it_goes_on_and_says_so(store, tmp_path):
    async with FakeDiscord() as fake:
        fake.user(ADA, "ada", shown="Ada")
        here = fake.dm(ADA)
        async with started(fake, store, tmp_path) as process:
            await connected(fake, process)
            fake.say(here, ADA, "My name is Ada")
            await until(lambda: any("Nice to meet you" in text for text in fake.sent(here)), "the answer", 60)
            fake.say(here, ADA, STORY)
            await until(lambda: any("Chapter 1." in text for text in fake.sent(here)), "the answer", 60)
            process.running.kill()
            await process.ended()
        fake.gateway.sessions.clear()
        fake.say(here, ADA, "What is my name?")
        async with started(fake, store, tmp_path) as process:
            await connected(fake, process)
            await until(lambda: any("Your name is Ada" in text for text in fake.sent(here)), "the answer", 60)
            await until(lambda: any("cut off" in text for text in fake.sent(here)), "the mark", 60)
            texts = fake.sent(here)
            assert sum("cut off" in text for text in texts) == 1
            assert sum("Chapter 1." in text for text in texts) == 1
            assert sum("Nice to meet you" in text for text in texts) == 1
            process.running.send_signal(signal.SIGTERM)
            assert await process.ended() == 0
        assert SECRET not in process.printed
    with recollect.open(store) as opened:
        kept = opened.get_session(f"discord:dm:{ADA}").messages()
        assert [m.parts[0].text for m in kept if m.role == "user"] == ["My name is Ada", STORY, "What is my name?"]
        assert [m.state for m in kept if m.role == "assistant"] == ["completed", "interrupted", "completed"]
    assert SECRET.encode() not in everything(tmp_path)


async def test_a_network_that_is_not_there_yet_is_waited_for(store, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        fake = FakeDiscord(taken.getsockname()[1])
    async with started(fake, store, tmp_path) as process:
        await until(lambda: "can not be reached" in process.printed, "the sentence", 60)
        async with fake:
            await connected(fake, process)
            assert SECRET not in process.printed
            process.running.send_signal(signal.SIGTERM)
            assert await process.ended() == 0
