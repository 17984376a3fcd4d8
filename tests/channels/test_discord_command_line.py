"""The command `recollect discord`: errors at the start, signals, and a killed process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys

import pytest
from discord_bots import ADA
from fake_discord import TOKEN, FakeDiscord, wait_until

import recollect

STORY = "Tell me 500 chapters"
SECRET = TOKEN.rpartition(".")[2]


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


class BotProcess:
    """The command in a child process, and its output."""

    def __init__(self, process, reader):
        self.process, self._reader = process, reader
        self.output = ""

    async def read(self):
        while chunk := await self._reader.read(4096):
            self.output += chunk.decode(errors="replace")

    async def wait(self):
        async with asyncio.timeout(60):
            return await self.process.wait()


@contextlib.asynccontextmanager
async def start_bot(fake, path, tmp_path, *, token=TOKEN, allow=str(ADA), **variables):
    (tmp_path / "config.toml").write_text("")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "RECOLLECT_CONFIG": str(tmp_path / "config.toml"),
        "RECOLLECT_DB": path,
        "RECOLLECT_DISCORD_BASE_URL": fake.url,
        "RECOLLECT_DISCORD_ALLOW": allow,
        **({"RECOLLECT_DISCORD_TOKEN": token} if token else {}),
        **variables,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from recollect.cli import main; main()", "discord",
        env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    bot = BotProcess(process, process.stdout)
    reading = asyncio.create_task(bot.read())
    try:
        yield bot
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        await reading


async def wait_until_connected(fake, bot):
    await wait_until(lambda: fake.gateway.connected or bot.process.returncode is not None, "the start", 60)
    assert bot.process.returncode is None, bot.output


def read_all_files(tmp_path):
    """Return the content of all files in the folder."""
    return b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


async def test_a_missing_token_is_reported(path, tmp_path):
    async with FakeDiscord() as fake, start_bot(fake, path, tmp_path, token=None) as bot:
        assert await bot.wait() == 1
        await wait_until(lambda: "RECOLLECT_DISCORD_TOKEN" in bot.output)
        assert "Traceback" not in bot.output


async def test_names_instead_of_ids_are_reported(path, tmp_path):
    async with FakeDiscord() as fake, start_bot(fake, path, tmp_path, allow="ada#1234") as bot:
        assert await bot.wait() == 1
        await wait_until(lambda: "Copy ID" in bot.output)


@pytest.mark.parametrize(("prefix", "debug"), [("wrong.", {}), ("wrong\n", {"RECOLLECT_DEBUG": "1"})])
async def test_an_invalid_token_is_reported_and_not_printed(path, tmp_path, prefix, debug):
    async with FakeDiscord() as fake, start_bot(fake, path, tmp_path, token=prefix + SECRET, **debug) as bot:
        assert await bot.wait() == 1
        await wait_until(lambda: "rejected the token" in bot.output)
        assert SECRET not in bot.output
        assert ("Traceback" in bot.output) == bool(debug)
    assert SECRET.encode() not in read_all_files(tmp_path)


async def test_a_missing_intent_is_reported(path, tmp_path):
    async with FakeDiscord() as fake:
        fake.gateway.content_allowed = False
        async with start_bot(fake, path, tmp_path) as bot:
            assert await bot.wait() == 1
            await wait_until(lambda: "Message Content Intent" in bot.output)
            assert "Traceback" not in bot.output


async def test_a_revoked_token_is_reported(path, tmp_path):
    async with FakeDiscord() as fake:
        fake.gateway.close_code = 4004
        async with start_bot(fake, path, tmp_path) as bot:
            assert await bot.wait() == 1
            await wait_until(lambda: "rejected the token" in bot.output)


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_bot_during_an_answer(path, tmp_path, signal_number):
    async with FakeDiscord() as fake:
        fake.user(ADA, "ada", display_name="Ada")
        channel = fake.dm(ADA)
        async with start_bot(fake, path, tmp_path) as bot:
            await wait_until_connected(fake, bot)
            fake.post(channel, ADA, STORY)
            await wait_until(lambda: any("Chapter 1." in text for text in fake.bot_texts(channel)), "the answer", 60)
            bot.process.send_signal(signal_number)
            assert await bot.wait() == 0
            await wait_until(lambda: "Stopped. All messages are stored" in bot.output)
            assert "discord.com/oauth2/authorize" in bot.output
            assert "Traceback" not in bot.output
        assert "was interrupted" in fake.bot_texts(channel)[-1]
        assert SECRET not in bot.output
    assert SECRET.encode() not in read_all_files(tmp_path)


async def test_a_killed_bot_marks_its_answer_as_interrupted_and_continues(path, tmp_path):
    async with FakeDiscord() as fake:
        fake.user(ADA, "ada", display_name="Ada")
        channel = fake.dm(ADA)
        async with start_bot(fake, path, tmp_path) as bot:
            await wait_until_connected(fake, bot)
            fake.post(channel, ADA, "My name is Ada")
            await wait_until(
                lambda: any("Nice to meet you" in text for text in fake.bot_texts(channel)), "the answer", 60
            )
            fake.post(channel, ADA, STORY)
            await wait_until(lambda: any("Chapter 1." in text for text in fake.bot_texts(channel)), "the answer", 60)
            bot.process.kill()
            await bot.wait()
        fake.gateway.sessions.clear()
        fake.post(channel, ADA, "What is my name?")
        async with start_bot(fake, path, tmp_path) as bot:
            await wait_until_connected(fake, bot)
            await wait_until(
                lambda: any("Your name is Ada" in text for text in fake.bot_texts(channel)), "the answer", 60
            )
            await wait_until(lambda: any("was interrupted" in text for text in fake.bot_texts(channel)), "the mark", 60)
            texts = fake.bot_texts(channel)
            assert sum("was interrupted" in text for text in texts) == 1
            assert sum("Chapter 1." in text for text in texts) == 1
            assert sum("Nice to meet you" in text for text in texts) == 1
            bot.process.send_signal(signal.SIGTERM)
            assert await bot.wait() == 0
        assert SECRET not in bot.output
    with recollect.open(path) as store:
        messages = store.get_session(f"discord:dm:{ADA}").messages()
        assert [m.parts[0].text for m in messages if m.role == "user"] == ["My name is Ada", STORY, "What is my name?"]  # pyright: ignore[reportAttributeAccessIssue]
        assert [m.state for m in messages if m.role == "assistant"] == ["completed", "interrupted", "completed"]
    assert SECRET.encode() not in read_all_files(tmp_path)


async def test_the_bot_waits_for_the_network(path, tmp_path):
    with socket.socket() as port_reservation:
        port_reservation.bind(("127.0.0.1", 0))
        fake = FakeDiscord(port_reservation.getsockname()[1])
    async with start_bot(fake, path, tmp_path) as bot:
        await wait_until(lambda: "Cannot reach Discord" in bot.output, "the error message", 60)
        async with fake:
            await wait_until_connected(fake, bot)
            assert SECRET not in bot.output
            bot.process.send_signal(signal.SIGTERM)
            assert await bot.wait() == 0
