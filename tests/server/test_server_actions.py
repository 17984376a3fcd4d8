"""The actions of a person in a conversation, without a browser: the branches they create, and idempotency keys."""

import asyncio
import contextlib

import pytest

from recollect.agent import Agent
from recollect.agent.demo import DemoModel
from recollect.agent.events import Responded, TextDelta
from recollect.errors import DiskFull, InvalidValue, KeyReused, ModelNotConfigured, SessionBusy, SessionNotFound
from recollect.model.message import AttachmentPart, Draft, TextPart
from recollect.server import actions
from recollect.server.account import Account
from recollect.store_async import open_async


class PausedModel(DemoModel):
    """A model that answers with a word, then waits until the test resumes it."""

    name = "paused"

    def __init__(self):
        super().__init__(pace=0)
        self.resume = asyncio.Event()

    async def run(self, messages, *, instructions, tools, toolsets=()):
        yield TextDelta(text="start ")
        await self.resume.wait()
        yield Responded(message=Draft(role="assistant", parts=(TextPart(text="start and end"),), model="paused"))


class FailingModel(DemoModel):
    async def run(self, messages, *, instructions, tools, toolsets=()):
        yield TextDelta(text="half an ")
        raise ConnectionError("the provider hung up")


@contextlib.asynccontextmanager
async def open_account(model=None):
    async with open_async(":memory:") as store:
        account = Account("", store, Agent(model or DemoModel(pace=0), store=store, name="web"))
        try:
            yield account
        finally:
            await account.runner.close()
            await account.agent.close()


async def wait_for_end(started_turn):
    while not started_turn.run.ended:
        await started_turn.run.changed(started_turn.run.count)
    return started_turn


def run(coroutine):
    asyncio.run(asyncio.wait_for(coroutine, 60))


async def texts(session):
    return [message.text for message in await session.messages()]


def test_a_message_is_stored_before_its_answer():
    async def scenario():
        async with open_account() as account:
            session = await account.store.session()
            started = await actions.send_message(account, session.id, "echo hello")
            assert (await session.message(started.turn)).text == "echo hello"
            await wait_for_end(started)
            assert await texts(session) == ["echo hello", "hello"]

    run(scenario())


def test_empty_messages_and_unknown_sessions_are_refused():
    async def scenario():
        async with open_account() as account:
            session = await account.store.session()
            with pytest.raises(InvalidValue):
                await actions.send_message(account, session.id, " \n ")
            with pytest.raises(SessionNotFound):
                await actions.send_message(account, "nowhere", "hello")
            with pytest.raises(InvalidValue):
                await actions.retry(account, session.id)
            assert await account.store.get_session("nowhere") is None
            assert await texts(session) == []

    run(scenario())


def test_an_edit_creates_a_branch_and_keeps_the_attachments():
    async def scenario():
        async with open_account() as account:
            session = await account.store.session()
            picture = AttachmentPart(mime_type="image/png", name="a.png", data="aGVsbG8=")
            first = await wait_for_end(await actions.send_message(account, session.id, "echo one", [picture]))
            await wait_for_end(await actions.send_message(account, session.id, "echo two"))
            await wait_for_end(await actions.edit_message(account, session.id, first.turn, "echo other"))
            await session.refresh()
            messages = await session.messages()
            assert [message.text for message in messages] == ["echo other", "other"]
            assert messages[0].parts[1] == picture
            assert len(await session.branches.list()) == 2
            await session.branches.switch(1)
            assert await texts(session) == ["echo one", "one", "echo two", "two"]

    run(scenario())


def test_an_answer_cannot_be_edited():
    async def scenario():
        async with open_account() as account:
            session = await account.store.session()
            await wait_for_end(await actions.send_message(account, session.id, "echo one"))
            answer = (await session.messages())[-1]
            with pytest.raises(InvalidValue):
                await actions.edit_message(account, session.id, answer.id, "mine")
            assert len(await session.branches.list()) == 1

    run(scenario())


def test_regenerate_an_answer_of_an_inactive_branch():
    async def scenario():
        async with open_account() as account:
            session = await account.store.session()
            first = await wait_for_end(await actions.send_message(account, session.id, "echo one"))
            answer = (await session.messages())[-1]
            await wait_for_end(await actions.regenerate(account, session.id, answer.id))
            await wait_for_end(await actions.edit_message(account, session.id, first.turn, "echo else"))
            assert await texts(session) == ["echo else", "else"]
            await wait_for_end(await actions.regenerate(account, session.id, answer.id))
            assert await texts(session) == ["echo one", "one"]
            branches = await session.branches.list()
            assert [(branch.parent, branch.fork_at) for branch in branches] == [(None, 0)] * 4

    run(scenario())


def test_actions_during_an_answer_are_refused_and_change_no_branch():
    async def scenario():
        model = PausedModel()
        async with open_account(model) as account:
            session = await account.store.session()
            started = await actions.send_message(account, session.id, "one")
            for action in (
                actions.send_message(account, session.id, "two"),
                actions.edit_message(account, session.id, started.turn, "three"),
                actions.regenerate(account, session.id),
            ):
                with pytest.raises(SessionBusy):
                    await action
            model.resume.set()
            await wait_for_end(started)
            assert await texts(session) == ["one", "start and end"]
            assert len(await session.branches.list()) == 1

    run(scenario())


def test_stop_keeps_the_partial_answer():
    async def scenario():
        async with open_account(PausedModel()) as account:
            session = await account.store.session()
            assert not await actions.stop_answer(account, session.id)
            started = await actions.send_message(account, session.id, "one")
            while started.run.count < 2:
                await asyncio.sleep(0.01)
            assert await actions.stop_answer(account, session.id)
            await wait_for_end(started)
            last = (await session.messages())[-1]
            assert (last.text, last.state) == ("start ", "interrupted")

    run(scenario())


def test_retry_after_a_failure_creates_a_branch():
    async def scenario():
        async with open_account(FailingModel(pace=0)) as account:
            session = await account.store.session()
            await wait_for_end(await actions.send_message(account, session.id, "echo one"))
            assert (await session.turns.list())[-1].status == "failed"
            account.agent._model = DemoModel(pace=0)
            await wait_for_end(await actions.retry(account, session.id))
            assert await texts(session) == ["echo one", "one"]
            assert len(await session.branches.list()) == 2

    run(scenario())


def test_a_key_starts_one_turn_concurrently_and_after_a_restart():
    async def scenario():
        async with open_account() as account:
            session = await account.store.session()
            started_turns = await asyncio.gather(
                *(actions.send_message(account, session.id, "echo one", key="k") for _ in range(3))
            )
            assert len({started.turn for started in started_turns}) == 1
            await wait_for_end(started_turns[0])
            with pytest.raises(KeyReused):
                await actions.send_message(account, session.id, "echo two", key="k")
            new_account = Account("", account.store, account.agent)
            repeated_turn = await actions.send_message(new_account, session.id, "echo one", key="k")
            assert repeated_turn == actions.StartedTurn(session.id, started_turns[0].turn)
            assert await texts(session) == ["echo one", "one"]

    run(scenario())


def test_the_key_of_a_refused_action_can_be_used_again():
    async def scenario():
        async with open_account(PausedModel()) as account:
            session = await account.store.session()
            started = await actions.send_message(account, session.id, "one")
            with pytest.raises(SessionBusy):
                await actions.send_message(account, session.id, "two", key="k")
            account.agent._model.resume.set()
            await wait_for_end(started)
            await wait_for_end(await actions.send_message(account, session.id, "two", key="k"))
            assert (await texts(session))[::2] == ["one", "two"]

    run(scenario())


def test_a_message_that_cannot_be_stored_is_refused_and_stored_once_later():
    async def scenario():
        async with open_account() as account:
            session = await account.store.session()
            await wait_for_end(await actions.send_message(account, session.id, "echo one"))
            branches = len(await session.branches.list())
            run_operation = account.store._run

            async def fail_writes(op):
                if op.writes:
                    raise DiskFull(path="/somewhere")
                return await run_operation(op)

            account.store._run = fail_writes
            for key in (None, "k", "k"):
                with pytest.raises(DiskFull):
                    await actions.send_message(account, session.id, "echo two", key=key)
            with pytest.raises(DiskFull):
                await actions.regenerate(account, session.id)
            assert account.runner.sessions() == []
            account.store._run = run_operation
            assert await texts(session) == ["echo one", "one"]
            await wait_for_end(await actions.send_message(account, session.id, "echo two", key="k"))
            await account.agent.close()  # a buffered step would be written now
            assert await texts(session) == ["echo one", "one", "echo two", "two"]
            assert len(await session.branches.list()) == branches

    run(scenario())


def test_the_model_is_remembered_and_an_unusable_one_changes_nothing():
    async def scenario():
        async with open_account() as account:
            session = await account.store.session()
            await wait_for_end(await actions.send_message(account, session.id, "echo one", model="demo"))
            assert (await session.refresh()).model == "demo"
            with pytest.raises(ModelNotConfigured):
                await actions.choose_model(account, session.id, "nobody:nothing")
            assert (await session.refresh()).model == "demo"
            assert (await actions.choose_model(account, session.id, None)).model is None

    run(scenario())


def test_commands_rename_and_switch_and_never_write_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def scenario():
        async with open_account() as account:
            session = await account.store.session()
            await wait_for_end(await actions.send_message(account, session.id, "echo one"))
            result = await actions.run_command(account, session.id, "/rename A title")
            assert not result.outcome.failed
            assert (await session.refresh()).title == "A title"
            new_chat = await actions.run_command(account, session.id, "/new")
            assert new_chat.session != session.id
            for line in ("/export", "/export md out.md"):
                assert (await actions.run_command(account, session.id, line)).outcome.data == "export"
            assert (await actions.run_command(account, session.id, "/nonsense")).outcome.failed
            assert list(tmp_path.iterdir()) == []

    run(scenario())


def test_a_key_returns_its_turn_after_many_later_messages():
    async def scenario():
        async with open_account() as account:
            session = await account.store.session()
            first = await actions.send_message(account, session.id, "echo one", key="sent")
            await wait_for_end(first)
            edit = await actions.edit_message(account, session.id, first.turn, "echo two", key="edited")
            await wait_for_end(edit)
            regeneration = await actions.regenerate(account, session.id, edit.turn, key="again")
            await wait_for_end(regeneration)
            retry = await actions.retry(account, session.id, key="retried")
            await wait_for_end(retry)
            for number in range(15):
                await wait_for_end(await actions.send_message(account, session.id, f"echo {number}"))
            branches, messages = len(await session.branches.list()), (await session.refresh()).message_count
            new_account = Account("", account.store, account.agent)
            assert (await actions.send_message(new_account, session.id, "echo one", key="sent")).turn == first.turn
            assert (
                await actions.edit_message(new_account, session.id, first.turn, "echo two", key="edited")
            ).turn == edit.turn
            assert (await actions.regenerate(new_account, session.id, edit.turn, key="again")).turn == regeneration.turn
            assert (await actions.retry(new_account, session.id, key="retried")).turn == retry.turn
            assert len({first.turn, edit.turn, regeneration.turn, retry.turn}) == 4
            await assert_keys_are_refused_with_other_content(new_account, session.id, first.turn, edit.turn)
            assert (len(await session.branches.list()), (await session.refresh()).message_count) == (branches, messages)

    run(scenario())


async def assert_keys_are_refused_with_other_content(account, session, first, edit):
    """Assert that each key is refused with other content or in another action."""
    for start in (
        lambda: actions.send_message(account, session, "echo other", key="sent"),
        lambda: actions.send_message(account, session, "echo two", key="edited"),
        lambda: actions.edit_message(account, session, first, "echo three", key="edited"),
        lambda: actions.edit_message(account, session, edit, "echo two", key="edited"),
        lambda: actions.edit_message(account, session, first, "echo one", key="sent"),
        lambda: actions.regenerate(account, session, first, key="again"),
        lambda: actions.regenerate(account, session, key="again"),
        lambda: actions.retry(account, session, key="sent"),
        lambda: actions.regenerate(account, session, first, key="retried"),
    ):
        with pytest.raises(KeyReused):
            await start()


def test_a_key_returns_its_turn_while_another_turn_runs():
    async def scenario():
        async with open_account(PausedModel()) as account:
            session = await account.store.session()
            account.agent._model.resume.set()
            first = await actions.send_message(account, session.id, "one", key="k")
            await wait_for_end(first)
            account.agent._model.resume.clear()
            running = await actions.send_message(account, session.id, "two")
            new_account = Account("", account.store, account.agent)
            assert (await actions.send_message(new_account, session.id, "one", key="k")).turn == first.turn
            account.agent._model.resume.set()
            await wait_for_end(running)

    run(scenario())


def test_servers_that_receive_the_same_key_concurrently_start_one_turn():
    async def scenario():
        async with open_account() as account:
            session = await account.store.session()
            agents = [Agent(DemoModel(pace=0), store=account.store, name="web") for _ in range(4)]
            servers = [account, *(Account("", account.store, agent) for agent in agents)]
            started_turns = await asyncio.gather(
                *(actions.send_message(server, session.id, "echo one", key="k") for server in servers)
            )
            assert len({item.turn for item in started_turns}) == 1
            await wait_for_end(next(item for item in started_turns if item.run is not None))
            assert await texts(session) == ["echo one", "one"]
            for agent in agents:
                await agent.close()

    run(scenario())


def test_one_of_two_concurrent_edits_starts_and_stays_the_active_branch():
    async def scenario():
        model = PausedModel()
        async with open_account(model) as account:
            session = await account.store.session()
            model.resume.set()
            first = await wait_for_end(await actions.send_message(account, session.id, "one"))
            model.resume.clear()
            edits = [actions.edit_message(account, session.id, first.turn, text) for text in ("two", "three")]
            results = await asyncio.gather(*edits, return_exceptions=True)
            started, error = sorted(results, key=lambda result: isinstance(result, BaseException))
            assert isinstance(error, SessionBusy)
            await session.refresh()
            assert f"{session.branch}." in started.turn  # pyright: ignore[reportAttributeAccessIssue]
            assert len(await session.branches.list()) == 2
            assert account.runner.run(session.id) is started.run  # pyright: ignore[reportAttributeAccessIssue]
            errors = await asyncio.gather(
                actions.edit_message(account, session.id, first.turn, "four"), actions.send_message(account, session.id, "five"),
                return_exceptions=True,
            )  # fmt: skip
            assert [type(result) for result in errors] == [SessionBusy, SessionBusy]
            model.resume.set()
            await wait_for_end(started)
            assert (await texts(session))[1:] == ["start and end"]

    run(scenario())
