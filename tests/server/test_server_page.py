"""What the page is drawn from, without a browser: stretches of a conversation, branches, a live answer, its events, files."""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.agent import Agent
from recollect.agent.demo import DemoModel, finished
from recollect.agent.events import ReasoningDelta, Responded, TextDelta, ToolStarted
from recollect.model import keys as session_ids
from recollect.model.branch import Branch
from recollect.model.message import Draft
from recollect.model.part import ReasoningPart, TextPart, ToolCallPart
from recollect.server import actions
from recollect.server.account import Account
from recollect.server.page import branching, conversation, events, files, items, naming, searching
from recollect.server.page.clock import Clock
from recollect.server.page.picture import picture
from recollect.server.page.uploads import _kind, _name
from recollect.server.talks import Run
from recollect.store_async import open_async
from recollect.testing.talk import answers, asks, assistant, user

CLOCK = Clock()


@contextlib.asynccontextmanager
async def an_account():
    async with open_async(":memory:") as store:
        account = Account("", store, Agent(DemoModel(pace=0), store=store, name="web"))
        try:
            yield account
        finally:
            await account.feed.close()
            await account.talks.close()
            await account.changes.close()
            await account.agent.close()


def run(story):
    asyncio.run(asyncio.wait_for(story, 60))


def keys(view):
    return [item.key for item in view.items if not item.key.startswith("day-")]


def branch(id, parent, fork_at, last, current=False):
    return Branch(id=id, parent=parent, fork_at=fork_at, last=last, current=current, created_at=id)


def test_branches_and_summaries_count_messages_without_tool_steps():
    async def story():
        async with an_account() as account:
            session = await account.store.session("s")
            for number in range(4):
                call = f"c{number}"
                await session.save_turn("q", [asks(call), answers(call), assistant("a")])
            await session.compact(summary="So far.")
            view = await items.latest(account, session, CLOCK)
            assert "4 earlier messages" in "".join(item.html for item in view.items)
            await session.rewind(12)
            await session.append([user("again"), asks("x")])
            [trunk] = await branching.tree(session, await session.branches())
            assert (trunk.messages, [twig.messages for twig in trunk.twigs]) == (8, [1])

    run(story())


def test_ways_on_are_found_where_branches_part():
    branches = [
        branch(1, None, 0, 6),
        branch(2, 1, 2, 4),
        branch(3, 1, 2, 4, current=True),
        branch(4, None, 0, 2),
        branch(5, 2, 4, 4),
    ]
    assert branching.path(branches) == {3: (2, 4), 1: (0, 2)}
    assert branching.forks(branches) == {3: [1, 2, 3], 1: [1, 4]}
    assert branching.tip(branches, 1, 1) == 3
    assert branching.tip(branches, 1, 3) == 1
    assert branching.tip(branches, 4, 1) == 4


def test_a_fork_in_another_session_is_no_step_here():
    assert branching.forks([branch(7, 3, 4, 6, current=True)]) == {}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=7))
def test_every_step_of_a_random_tree_leads_to_its_version(taken):
    async def story():
        async with an_account() as account:
            session = await account.store.create_session()
            await session.append([{"role": "user", "content": "0"}, {"role": "assistant", "content": "a"}] * 3)
            for number, (to, again) in enumerate(taken):
                count = len(await session.messages())
                await session.rewind(min(to, count))
                text = "again" if again else f"version {number}"
                await session.append(
                    [{"role": "user", "content": text}, {"role": "assistant", "content": f"answer {number}"}]
                )
            messages, branches = await session.messages(), await session.branches()
            steps = await branching.steps(session, messages, branches)
            for id, step in steps.items():
                assert 1 <= step.number <= step.ways
                position = int(id.split(".")[1])
                for target in (step.before, step.after):
                    if target is not None:
                        await session.switch(target)
                        there = (await session.messages(1, before=position + 1))[0]
                        now = await branching.steps(session, [there], await session.branches())
                        assert now[there.id].ways == step.ways
                        assert (
                            now[there.id].number
                            == step.number + (1 if target == step.after and target != step.before else -1)
                            or step.before == step.after
                        )

    run(story())


def test_pages_meet_without_a_gap_and_begin_with_a_question():
    async def story():
        async with an_account() as account:
            session = await account.store.create_session()
            for number in range(100):
                await session.save_turn(
                    f"q {number}", [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]
                )
            view = await items.latest(account, session, CLOCK)
            seen = keys(view)
            while view.older:
                assert seen[0].startswith("m-")
                position = int(seen[0].partition(".")[2])
                assert (await session.message(f"1.{position}")).role == "user"
                view = await items.older(account, session, CLOCK, before=view.first)
                seen = keys(view) + seen
            assert len(seen) == len(set(seen)) == 200
            whole = await items.between(account, session, CLOCK, first=1, last=None)
            assert keys(whole) == seen
            middle = await items.around(account, session, CLOCK, position=150)
            assert middle.older
            assert middle.newer
            after = await items.between(account, session, CLOCK, first=middle.last + 1, last=middle.last + 60)
            assert after.first == middle.last + 1

    run(story())


def test_what_is_said_while_a_page_is_read_pushes_nothing_out_of_it(monkeypatch):
    async def story():
        async with an_account() as account:
            session = await account.store.create_session()
            for number in range(60):
                await session.save_turn(f"q {number}", {"role": "assistant", "content": "a"})
            before = await items.latest(account, session, CLOCK)
            end_of = items._end

            async def end_and_more(session):
                end = await end_of(session)
                await session.save_turn("said meanwhile", {"role": "assistant", "content": "b"})
                return end

            monkeypatch.setattr(items, "_end", end_and_more)
            after = await items.between(account, session, CLOCK, first=before.first, last=None)
            assert (after.first, after.last) == (before.first, before.last + 2)
            assert keys(after)[: len(keys(before))] == keys(before)

    run(story())


def test_what_was_summed_up_is_one_item_and_pages_step_over_it():
    async def story():
        async with an_account() as account:
            session = await account.store.create_session()
            for number in range(90):
                await session.save_turn(f"q {number}", {"role": "assistant", "content": "a"})
            await session.compact(before="1.101", summary="the first fifty")
            view = await items.latest(account, session, CLOCK)
            assert keys(view)[0] == "m-1.121"
            view = await items.older(account, session, CLOCK, before=view.first)
            assert keys(view)[0] == "fold-1"
            assert not view.older
            fold = (await session.compactions())[0]
            inside = await items.folded(account, session, CLOCK, fold, None)
            assert keys(inside)[-1] == "m-1.100"
            assert inside.older
            earlier = await items.folded(account, session, CLOCK, fold, inside.first)
            assert keys(earlier)[0] == "m-1.1"
            jumped = await items.around(account, session, CLOCK, position=50)
            assert "m-1.50" in keys(jumped)

    run(story())


def pieces(text, size):
    return [text[at : at + size] for at in range(0, len(text), size)]


class Page:
    """What a browser has of a live answer, put together from the changes that it was sent."""

    def __init__(self):
        self.version, self.blocks = -1, []

    async def take(self, seen):
        changes = await seen.changes(self.version)
        for index, *rest in changes["blocks"]:
            block = seen.blocks[index]
            if len(rest) == 2:
                kept, html = rest
                assert "".join(self.blocks[index][:kept]) + html == "".join(block.stream.blocks)
            else:
                assert rest[0] == block.whole()
                if index == len(self.blocks):
                    self.blocks.append(None)
            self.blocks[index] = list(block.stream.blocks) if block.stream is not None else [rest[0]]
        del self.blocks[changes["count"] :]
        self.version = changes["version"]


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 9), st.lists(st.integers(0, 2), min_size=1, max_size=60))
def test_a_live_answer_looks_as_it_will_be_stored(size, looks):
    """Two pages that look at different moments end with the same blocks, which are those of the stored answer."""
    text = "# Title\n\nOne *two* three.\n\n1. a\n2. b\n\n```python\nx = 1\n```\n\n| a |\n|---|\n| 1 |\n\nEnd."
    call = ToolCallPart(call_id="c", tool="look", arguments={"query": "x"})
    happened = [ReasoningDelta(text=piece) for piece in pieces("I think so.", size)]
    happened += [TextDelta(text=piece) for piece in pieces(text, size)]
    reasoning = ReasoningPart(text="I think so.", metadata={"duration_ms": 2000})
    first = Draft(role="assistant", parts=(reasoning, TextPart(text=text), call))
    happened += [Responded(message=first), ToolStarted(call_id="c", tool="look", arguments=call.input)]
    result = finished(call, "success", "found", 40)
    happened += [
        result,
        TextDelta(text="Done."),
        Responded(message=Draft(role="assistant", parts=(TextPart(text="Done."),))),
    ]

    async def story():
        live = Run("s")
        live.turn = "1.1"
        seen = picture(live)
        watching = [Page(), Page()]
        for number, event in enumerate(happened):
            live.add(event)
            look = looks[number % len(looks)]
            if look < 2:
                await watching[look].take(seen)
        for page in watching:
            await page.take(seen)
            assert page.version == seen.version
            assert len(page.blocks) == len(seen.blocks) == 4
        async with an_account() as account:
            session = await account.store.create_session()
            await session.append([{"role": "user", "content": "q"}])
            await session.append([first, result.message, Draft(role="assistant", parts=(TextPart(text="Done."),))])
            stored = (await items.latest(account, session, CLOCK)).items[-1].html
            for block in seen.blocks[:2] + seen.blocks[3:]:
                assert block.whole() in stored
            assert "look" in seen.blocks[2].whole()

    run(story())


def test_each_file_of_several_results_is_linked_to_its_own_place():
    def file(name):
        return {"kind": "attachment", "mime_type": "text/plain", "name": name, "text": f"this is {name}"}

    def result(call, *names):
        return {"kind": "tool_result", "call_id": call, "status": "success", "content": [file(name) for name in names]}

    async def story():
        async with an_account() as account:
            session = await account.store.create_session("s/1")
            calls = [{"kind": "tool_call", "call_id": name, "tool": "get", "arguments": {}} for name in ("one", "two")]
            await session.append({"role": "user", "content": "get them"})
            await session.append({"role": "assistant", "parts": calls})
            results = [result("one", "a"), result("two", "b", "c"), result("lost", "d")]
            await session.append({"role": "tool", "parts": results})
            shown = "".join(item.html for item in (await items.latest(account, session, CLOCK)).items)
            links = re.findall(r'href="/files/s%2F1/([^/"]+)/([^"]+)"', shown)
            assert [place for _, place in links] == ["0.0", "1.0", "1.1", "2.0"]
            message = await session.message(links[0][0])
            assert [files._part(message, place).name for _, place in links] == ["a", "b", "c", "d"]
            assert {at for at, _ in links} == {message.id}

    run(story())


def heard(piece):
    lines = dict(line.split(": ", 1) for line in piece.decode().strip().split("\n") if ": " in line)
    return lines.get("event"), json.loads(lines.get("data", "{}")), lines.get("id")


def test_the_event_stream_tells_changes_and_progress_and_resumes():
    async def story():
        async with an_account() as account:
            session = await account.store.create_session()
            stream = events.follow(account, [session.id], None)
            hello = (await anext(stream)).split(b"\n\n", 1)[1]
            assert heard(hello)[1] == {"missed": True}
            said = await actions.say(account, session.id, "echo one")
            told = []
            async for piece in stream:
                told.append(heard(piece))
                if told[-1][0] == "ended":
                    break
            await stream.aclose()
            assert {name for name, _, _ in told} >= {"change", "progress", "ended"}
            assert told[-1][1]["turn"] == said.turn
            mark = [id for _, _, id in told if id][-1]
            known = account.feed.count
            await session.update(title="Meanwhile")
            while account.feed.count == known:
                await asyncio.sleep(0.01)
            again = events.follow(account, [], mark)
            hello = (await anext(again)).split(b"\n\n", 1)[1]
            assert heard(hello)[1] == {"missed": False}
            name, change, _ = heard(await anext(again))
            assert (name, change["session"]) == ("change", session.id)
            assert change["running"] is False
            await again.aclose()
            assert account.feed.watchers == set()
            unknown = events.follow(account, [], "elsewhere.7")
            assert heard((await anext(unknown)).split(b"\n\n", 1)[1])[1] == {"missed": True}
            account.closing.set()
            assert [piece async for piece in unknown] == []

    run(story())


def test_an_end_is_told_also_to_who_comes_after_it_and_of_a_run_that_another_one_followed():
    async def story():
        wake = asyncio.Event()
        followed = events.Followed("s", wake)
        first, second = Run("s"), Run("s")
        first.turn, second.turn = "1.1", "1.3"
        first.end()
        told = [
            heard(piece)[:2] for piece in await followed.news(first)
        ]  # it ended before anyone looked: it is not drawn
        assert told == [("ended", {"session": "s", "turn": "1.1"})]
        assert await followed.news(first) == []
        second.add(TextDelta(text="begun"))
        assert [heard(piece)[0] for piece in await followed.news(second)] == ["progress"]
        third = Run("s")
        third.turn = "1.5"
        second.end()
        third.add(TextDelta(text="at once"))
        seen = [(name, data["turn"]) for name, data, _ in map(heard, await followed.news(third))]
        assert seen == [("ended", "1.3"), ("progress", "1.5")]
        assert (second.watchers, third.watchers) == (set(), {wake})

    run(story())


def test_a_place_is_told_with_the_last_of_several_changes():
    async def story():
        async with an_account() as account:
            await account.feed.begin()
            start = account.feed.mark(account.feed.count)
            made = [(await account.store.create_session()).id for _ in range(3)]
            while account.feed.count < 3:
                await asyncio.sleep(0.01)
            stream = events.follow(account, [], start)
            hello = heard((await anext(stream)).split(b"\n\n", 1)[1])
            assert hello[1:] == ({"missed": False}, start)
            told = [heard(await anext(stream)) for _ in made]
            await stream.aclose()
            assert [data["session"] for _, data, _ in told] == made
            assert [id for _, _, id in told] == [None, None, account.feed.mark(account.feed.count)]

    run(story())


@pytest.mark.parametrize(
    ("name", "shown"),
    [("../../etc/passwd", "passwd"), ("C:\\a\\b.txt", "b.txt"), ("\u202egnp.exe\n", "gnp.exe"), ("", "file"), (None, "file"), ("a" * 400, "a" * 200)],
)  # fmt: skip
def test_file_names_lose_their_folders_and_tricks(name, shown):
    assert _name(name) == shown


def test_a_file_is_what_it_is_and_not_what_it_says():
    assert _kind(b"\x89PNG\r\n\x1a\nrest", "a.html", "text/html") == "image/png"
    assert _kind(b"<script>", "a.png", "image/png") == "text/plain"
    assert _kind(b"\0\1\2", "a.png", "image/png") == "application/octet-stream"
    assert _kind(b"<svg/>", "a.svg", "image/svg+xml") == "image/svg+xml"


def test_the_charset_is_told_once(api, session, server):
    api.post(f"{session}/messages", json={"messages": [{"role": "user", "content": "x"}]})
    page = f"{server.url}/page/conversation/s%2F1"
    for path in (
        f"{server.url}/c/s%2F1", f"{server.url}/figures", f"{server.url}/static/frame.css", f"{server.url}/static/frame.js",
        f"{server.url}/page/sessions", page, f"{page}/text?first=1.1&last=1.1", f"{server.url}/page/export?scope=all&format=md",
        f"{server.url}/page/export?scope=all&format=html", f"{server.url}/static/nothing.css",
    ):  # fmt: skip
        kind = api.get(path).headers["content-type"]
        assert kind.count("charset") == (1 if kind.startswith("text/") else 0), (path, kind)
    with api.stream("GET", f"{server.url}/events") as stream:
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"


def test_a_link_that_leads_nowhere_is_a_page_for_a_browser_and_a_problem_for_a_program(api, server):
    path = f"{server.url}/c/%3Cb%3Enobody"
    shown = api.get(path, headers={"Sec-Fetch-Mode": "navigate"})
    assert shown.status_code == 404
    assert shown.headers["content-type"] == "text/html; charset=utf-8"
    assert "&lt;b&gt;nobody" in shown.text
    assert "<b>nobody" not in shown.text
    assert api.get(path).json()["code"] == "session-not-found"
    assert api.get("/sessions/nobody", headers={"Sec-Fetch-Mode": "navigate"}).json()["code"] == "session-not-found"


def test_the_start_page_passes_over_ids_that_no_url_carries(api, server, monkeypatch):
    def started():
        answer = api.get(f"{server.url}/", headers={"Sec-Fetch-Mode": "navigate"}, follow_redirects=False)
        assert answer.status_code == 303
        return answer.headers["location"]

    with monkeypatch.context() as older:  # a version that took them
        older.setattr(session_ids, "_DOT_SEGMENTS", frozenset())
        for id in (".", ".."):
            assert api.post("/sessions", json={"id": id}).status_code == 201
    for id in (".", ".."):
        refused = api.post("/sessions", json={"id": id})
        assert (refused.status_code, "URL" in refused.text) == (400, True)
    assert api.get(f"{server.url}/", headers={"Sec-Fetch-Mode": "navigate"}).status_code == 200  # a page to begin one
    new = f"/c/{api.post('/sessions', json={}).json()['id']}"
    assert started() == new
    api.put("/last-session", json={"session": ".."})
    assert started() == new


def test_other_libraries_are_not_loaded_for_their_classes():
    code = (
        "import sys\nfrom recollect.server import app\nfrom recollect.server.account import Accounts\n"
        "app.make(Accounts(':memory:', lambda store: None), {'t': ''})\n"
        "sys.exit(any(name in sys.modules for name in ('pydantic', 'attrs', 'pygments.lexers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_conversation_without_a_title_is_called_by_its_first_words_everywhere():
    async def story():
        async with an_account() as account:
            store = account.store
            talk = await store.session("cli:coat")
            await talk.append(
                [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "A coat? In May."}]
            )
            fork = await talk.fork(title="A coat of paint")
            helper = await store.session("cli:coat:delegate:tailor", parent="cli:coat")
            await helper.append({"role": "user", "content": "Sew a coat"})
            new = await store.create_session()
            assert (await conversation.header(account, talk))["title"] == "A coat?"
            assert (await conversation.header(account, fork))["title"] == "A coat of paint"
            assert (await conversation.header(account, new))["title"] == "New chat"
            hits = await store.search("coat", delegates=True)
            found = searching.places(hits, CLOCK, await searching.looked_up(account, hits))
            assert {place.session: (place.title, place.note) for place in found} == {
                talk.id: ("A coat?", "cli"),
                fork.id: ("A coat of paint", "fork"),
                helper.id: ("Sew a coat", "cli · sub-agent"),
            }
            await store.delete_session(talk.id)
            assert searching.places(hits, CLOCK, await searching.looked_up(account, hits))[0].hits

    run(story())


def test_a_call_that_came_with_its_result_says_nothing_of_how_long_it_took():
    async def story():
        async with an_account() as account:
            talk = await account.store.session("a")
            await talk.append(
                [
                    {"role": "assistant", "content": None, "tool_calls": [
                        {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
                    {"role": "tool", "tool_call_id": "c", "content": "a sock"},
                ],
                format="openai",
            )  # fmt: skip
            view = await items.latest(account, talk, CLOCK)
            assert "a sock" in view.items[-1].html
            assert not re.search(r"\b\d+ ms\b", view.items[-1].html)

    run(story())


@pytest.mark.parametrize("want", ["news", "older", "newer"])
def test_a_conversation_that_goes_while_it_is_read_is_gone_and_no_error(monkeypatch, want):
    async def story():
        async with an_account() as account:
            session = await account.store.session("web:going")
            await session.append({"role": "user", "content": "hello"})
            for name in ("between", "older"):
                read = getattr(items, name)

                async def late(*args, read=read, **options):
                    await account.store.delete_session("web:going")
                    return await read(*args, **options)

                monkeypatch.setattr(items, name, late)
            asked = types.SimpleNamespace(cookies={})
            shown = conversation.Shown(want=want, first=1, last=1)
            given = await conversation.conversation_items.fn(asked, account, "web:going", shown)
            assert given == {"gone": "trash"}

    run(story())


def test_a_session_that_goes_while_the_list_is_read_has_no_words():
    async def story():
        async with an_account() as account:
            session = await account.store.session("untitled")
            await session.append({"role": "user", "content": "words"})
            assert await naming.first_words(account.store, "untitled") == "words"
            info = session.info
            await account.store.delete_session("untitled")
            assert await naming.called(account.store, info) == naming.UNTITLED
            await account.store.erase_session("untitled", deleted=True)
            assert await naming.called(account.store, info) == naming.UNTITLED

    run(story())
