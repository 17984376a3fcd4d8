"""What a person does in a conversation, without a browser: the branches that it makes, and that nothing happens twice."""

import asyncio
import contextlib

import pytest

from recollect.agent import Agent
from recollect.agent.demo import DemoModel
from recollect.agent.events import Responded, TextDelta
from recollect.errors import DiskFull, InvalidValue, KeyReused, ModelNotConfigured, SessionBusy, SessionNotFound
from recollect.model.message import Draft
from recollect.model.part import AttachmentPart, TextPart
from recollect.server import actions
from recollect.server.account import Account
from recollect.store_async import open_async


class Held(DemoModel):
    """Answers with a word, then waits until it is let go."""

    name = "held"

    def __init__(self):
        super().__init__(pace=0)
        self.go = asyncio.Event()

    async def run(self, spoken, *, instructions, tools, toolsets=()):
        yield TextDelta(text="begun ")
        await self.go.wait()
        yield Responded(message=Draft(role="assistant", parts=(TextPart(text="begun and ended"),), model="held"))


class Failing(DemoModel):
    async def run(self, spoken, *, instructions, tools, toolsets=()):
        yield TextDelta(text="half an ")
        raise ConnectionError("the provider hung up")


@contextlib.asynccontextmanager
async def an_account(model=None):
    async with open_async(":memory:") as store:
        account = Account("", store, Agent(model or DemoModel(pace=0), store=store, name="web"))
        try:
            yield account
        finally:
            await account.talks.close()
            await account.agent.close()


async def ended(said):
    while not said.run.ended:
        await said.run.changed(said.run.count)
    return said


def run(story):
    asyncio.run(asyncio.wait_for(story, 60))


async def texts(session):
    return [message.text for message in await session.messages()]


def test_what_is_said_is_stored_before_the_answer_and_the_answer_comes():
    async def story():
        async with an_account() as account:
            session = await account.store.create_session()
            said = await actions.say(account, session.id, "echo hello")
            assert (await session.message(said.turn)).text == "echo hello"
            await ended(said)
            assert await texts(session) == ["echo hello", "hello"]

    run(story())


def test_nothing_and_nowhere_are_refused():
    async def story():
        async with an_account() as account:
            session = await account.store.create_session()
            with pytest.raises(InvalidValue):
                await actions.say(account, session.id, " \n ")
            with pytest.raises(SessionNotFound):
                await actions.say(account, "nowhere", "hello")
            with pytest.raises(InvalidValue):
                await actions.retry(account, session.id)
            assert await account.store.get_session("nowhere") is None
            assert await texts(session) == []

    run(story())


def test_an_edit_makes_a_branch_and_keeps_what_was_there_and_the_attachments():
    async def story():
        async with an_account() as account:
            session = await account.store.create_session()
            picture = AttachmentPart(mime_type="image/png", name="a.png", data="aGVsbG8=")
            first = await ended(await actions.say(account, session.id, "echo one", [picture]))
            await ended(await actions.say(account, session.id, "echo two"))
            await ended(await actions.edit(account, session.id, first.turn, "echo other"))
            await session.refresh()
            messages = await session.messages()
            assert [message.text for message in messages] == ["echo other", "other"]
            assert messages[0].parts[1] == picture
            assert len(await session.branches()) == 2
            await session.switch(1)
            assert await texts(session) == ["echo one", "one", "echo two", "two"]

    run(story())


def test_an_answer_is_no_question_and_is_not_edited():
    async def story():
        async with an_account() as account:
            session = await account.store.create_session()
            await ended(await actions.say(account, session.id, "echo one"))
            answer = (await session.messages())[-1]
            with pytest.raises(InvalidValue):
                await actions.edit(account, session.id, answer.id, "mine")
            assert len(await session.branches()) == 1

    run(story())


def test_regenerate_asks_again_also_on_a_branch_that_is_not_the_active_one():
    async def story():
        async with an_account() as account:
            session = await account.store.create_session()
            first = await ended(await actions.say(account, session.id, "echo one"))
            answer = (await session.messages())[-1]
            await ended(await actions.regenerate(account, session.id, answer.id))
            await ended(await actions.edit(account, session.id, first.turn, "echo else"))
            assert await texts(session) == ["echo else", "else"]
            await ended(await actions.regenerate(account, session.id, answer.id))
            assert await texts(session) == ["echo one", "one"]
            branches = await session.branches()
            assert [(branch.parent, branch.fork_at) for branch in branches] == [(None, 0)] * 4

    run(story())


def test_a_second_question_during_an_answer_is_refused_and_leaves_the_branch_alone():
    async def story():
        model = Held()
        async with an_account(model) as account:
            session = await account.store.create_session()
            said = await actions.say(account, session.id, "one")
            for again in (
                actions.say(account, session.id, "two"),
                actions.edit(account, session.id, said.turn, "three"),
                actions.regenerate(account, session.id),
            ):
                with pytest.raises(SessionBusy):
                    await again
            model.go.set()
            await ended(said)
            assert await texts(session) == ["one", "begun and ended"]
            assert len(await session.branches()) == 1

    run(story())


def test_stop_keeps_what_came():
    async def story():
        async with an_account(Held()) as account:
            session = await account.store.create_session()
            assert not await actions.stop(account, session.id)
            said = await actions.say(account, session.id, "one")
            while said.run.count < 2:
                await asyncio.sleep(0.01)
            assert await actions.stop(account, session.id)
            await ended(said)
            last = (await session.messages())[-1]
            assert (last.text, last.state) == ("begun ", "interrupted")

    run(story())


def test_retry_after_a_failure_asks_again_beside_it():
    async def story():
        async with an_account(Failing(pace=0)) as account:
            session = await account.store.create_session()
            await ended(await actions.say(account, session.id, "echo one"))
            assert (await session.turns())[-1].status == "failed"
            account.agent._model = DemoModel(pace=0)
            await ended(await actions.retry(account, session.id))
            assert await texts(session) == ["echo one", "one"]
            assert len(await session.branches()) == 2

    run(story())


def test_the_same_key_happens_once_also_at_once_and_after_a_restart():
    async def story():
        async with an_account() as account:
            session = await account.store.create_session()
            both = await asyncio.gather(*(actions.say(account, session.id, "echo one", key="k") for _ in range(3)))
            assert len({said.turn for said in both}) == 1
            await ended(both[0])
            with pytest.raises(KeyReused):
                await actions.say(account, session.id, "echo two", key="k")
            restarted = Account("", account.store, account.agent)
            again = await actions.say(restarted, session.id, "echo one", key="k")
            assert again == actions.Said(session.id, both[0].turn)
            assert await texts(session) == ["echo one", "one"]

    run(story())


def test_a_key_whose_action_failed_may_be_used_again():
    async def story():
        async with an_account(Held()) as account:
            session = await account.store.create_session()
            said = await actions.say(account, session.id, "one")
            with pytest.raises(SessionBusy):
                await actions.say(account, session.id, "two", key="k")
            account.agent._model.go.set()
            await ended(said)
            await ended(await actions.say(account, session.id, "two", key="k"))
            assert (await texts(session))[::2] == ["one", "two"]

    run(story())


def test_what_can_not_be_stored_is_refused_and_said_once_when_it_is_sent_again():
    async def story():
        async with an_account() as account:
            session = await account.store.create_session()
            await ended(await actions.say(account, session.id, "echo one"))
            branches = len(await session.branches())
            plain = account.store.run

            async def full(op):
                if op.writes:
                    raise DiskFull(path="/somewhere")
                return await plain(op)

            account.store.run = full
            for key in (None, "k", "k"):
                with pytest.raises(DiskFull):
                    await actions.say(account, session.id, "echo two", key=key)
            with pytest.raises(DiskFull):
                await actions.regenerate(account, session.id)
            assert account.talks.sessions() == []
            account.store.run = plain
            assert await texts(session) == ["echo one", "one"]
            await ended(await actions.say(account, session.id, "echo two", key="k"))
            await account.agent.close()  # what was held would be written now
            assert await texts(session) == ["echo one", "one", "echo two", "two"]
            assert len(await session.branches()) == branches

    run(story())


def test_a_model_is_remembered_and_one_that_can_not_be_talked_to_changes_nothing():
    async def story():
        async with an_account() as account:
            session = await account.store.create_session()
            await ended(await actions.say(account, session.id, "echo one", model="demo"))
            assert (await session.refresh()).model == "demo"
            with pytest.raises(ModelNotConfigured):
                await actions.choose_model(account, session.id, "nobody:nothing")
            assert (await session.refresh()).model == "demo"
            assert (await actions.choose_model(account, session.id, None)).model is None

    run(story())


def test_commands_move_rename_and_never_write_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def story():
        async with an_account() as account:
            session = await account.store.create_session()
            await ended(await actions.say(account, session.id, "echo one"))
            done = await actions.command(account, session.id, "/rename A title")
            assert not done.outcome.failed
            assert (await session.refresh()).title == "A title"
            moved = await actions.command(account, session.id, "/new")
            assert moved.session != session.id
            for line in ("/export", "/export md out.md"):
                assert (await actions.command(account, session.id, line)).outcome.data == "export"
            assert (await actions.command(account, session.id, "/nonsense")).outcome.failed
            assert list(tmp_path.iterdir()) == []

    run(story())


def test_a_key_is_exact_for_ever_whatever_was_said_since():
    async def story():
        async with an_account() as account:
            session = await account.store.create_session()
            first = await actions.say(account, session.id, "echo one", key="said")
            await ended(first)
            other = await actions.edit(account, session.id, first.turn, "echo two", key="edited")
            await ended(other)
            again = await actions.regenerate(account, session.id, other.turn, key="again")
            await ended(again)
            last = await actions.retry(account, session.id, key="retried")
            await ended(last)
            for number in range(15):
                await ended(await actions.say(account, session.id, f"echo {number}"))
            branches, messages = len(await session.branches()), (await session.refresh()).message_count
            later = Account("", account.store, account.agent)
            assert (await actions.say(later, session.id, "echo one", key="said")).turn == first.turn
            assert (await actions.edit(later, session.id, first.turn, "echo two", key="edited")).turn == other.turn
            assert (await actions.regenerate(later, session.id, other.turn, key="again")).turn == again.turn
            assert (await actions.retry(later, session.id, key="retried")).turn == last.turn
            assert len({first.turn, other.turn, again.turn, last.turn}) == 4
            await refused_under_their_keys(later, session.id, first.turn, other.turn)
            assert (len(await session.branches()), (await session.refresh()).message_count) == (branches, messages)

    run(story())


async def refused_under_their_keys(account, session, first, other):
    """The same key with other content is an error, whichever action took it."""
    for begin in (
        lambda: actions.say(account, session, "echo other", key="said"),
        lambda: actions.say(account, session, "echo two", key="edited"),
        lambda: actions.edit(account, session, first, "echo three", key="edited"),
        lambda: actions.edit(account, session, other, "echo two", key="edited"),
        lambda: actions.edit(account, session, first, "echo one", key="said"),
        lambda: actions.regenerate(account, session, first, key="again"),
        lambda: actions.regenerate(account, session, key="again"),
        lambda: actions.retry(account, session, key="said"),
        lambda: actions.regenerate(account, session, first, key="retried"),
    ):
        with pytest.raises(KeyReused):
            await begin()


def test_a_key_is_answered_while_another_turn_runs():
    async def story():
        async with an_account(Held()) as account:
            session = await account.store.create_session()
            account.agent._model.go.set()
            first = await actions.say(account, session.id, "one", key="k")
            await ended(first)
            account.agent._model.go.clear()
            running = await actions.say(account, session.id, "two")
            later = Account("", account.store, account.agent)
            assert (await actions.say(later, session.id, "one", key="k")).turn == first.turn
            account.agent._model.go.set()
            await ended(running)

    run(story())


def test_two_servers_that_take_the_same_key_at_once_begin_one_turn():
    async def story():
        async with an_account() as account:
            session = await account.store.create_session()
            agents = [Agent(DemoModel(pace=0), store=account.store, name="web") for _ in range(4)]
            servers = [account, *(Account("", account.store, agent) for agent in agents)]
            said = await asyncio.gather(*(actions.say(one, session.id, "echo one", key="k") for one in servers))
            assert len({item.turn for item in said}) == 1
            await ended(next(item for item in said if item.run is not None))
            assert await texts(session) == ["echo one", "one"]
            for agent in agents:
                await agent.close()

    run(story())


def test_of_two_edits_at_once_one_begins_and_the_page_stays_where_it_answers():
    async def story():
        model = Held()
        async with an_account(model) as account:
            session = await account.store.create_session()
            model.go.set()
            first = await ended(await actions.say(account, session.id, "one"))
            model.go.clear()
            both = [actions.edit(account, session.id, first.turn, text) for text in ("two", "three")]
            found = await asyncio.gather(*both, return_exceptions=True)
            said, refused = sorted(found, key=lambda one: isinstance(one, BaseException))
            assert isinstance(refused, SessionBusy)
            await session.refresh()
            assert f"{session.branch}." in said.turn
            assert len(await session.branches()) == 2
            assert account.talks.run(session.id) is said.run
            beside = await asyncio.gather(
                actions.edit(account, session.id, first.turn, "four"), actions.say(account, session.id, "five"),
                return_exceptions=True,
            )  # fmt: skip
            assert [type(one) for one in beside] == [SessionBusy, SessionBusy]
            model.go.set()
            await ended(said)
            assert (await texts(session))[1:] == ["begun and ended"]

    run(story())
