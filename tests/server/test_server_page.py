"""The data of the page, without a browser: ranges of messages, branches, a live answer, its events, and files."""

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
from recollect.agent.demo import DemoModel, tool_finished_event
from recollect.agent.events import ReasoningDelta, Responded, TextDelta, ToolStarted
from recollect.model.message import Draft, ReasoningPart, TextPart, ToolCallPart
from recollect.model.session import Branch
from recollect.server import actions
from recollect.server.account import Account
from recollect.server.attachments import _clean_file_name, _detect_mime_type
from recollect.server.page import branching, conversation, item_rendering, live_updates, search, session_rows
from recollect.server.page.clock import Clock
from recollect.server.page.live_updates import live_answer_of
from recollect.server.turn_runner import TurnRun
from recollect.store_async import open_async
from recollect_conformance.examples import assistant, tool_call_message, tool_result_message, user

CLOCK = Clock()


@contextlib.asynccontextmanager
async def open_account():
    async with open_async(":memory:") as store:
        account = Account("", store, Agent(DemoModel(pace=0), store=store, name="web"))
        try:
            yield account
        finally:
            await account.feed.close()
            await account.runner.close()
            await account.changes.close()
            await account.agent.close()


def run(coroutine):
    asyncio.run(asyncio.wait_for(coroutine, 60))


def keys(view):
    return [item.key for item in view.items if not item.key.startswith("day-")]


def branch(id, parent, fork_at, last, current=False):
    return Branch(id=id, parent=parent, fork_at=fork_at, last=last, current=current, created_at_ms=id)


def test_branches_and_summaries_count_messages_without_tool_steps():
    async def scenario():
        async with open_account() as account:
            session = await account.store.session("s")
            for number in range(4):
                call = f"c{number}"
                await session.save_turn("q", [tool_call_message(call), tool_result_message(call), assistant("a")])
            await session.compact(summary="So far.")
            view = await item_rendering.read_latest(account, session, CLOCK)
            assert "4 earlier messages" in "".join(item.html for item in view.items)
            await session.rewind(12)
            await session.append([user("again"), tool_call_message("x")])
            [trunk] = await branching.branch_tree(session, await session.branches.list())
            assert (trunk.messages, [twig.messages for twig in trunk.children]) == (8, [1])

    run(scenario())


def test_branches_at_a_fork_point():
    branches = [
        branch(1, None, 0, 6),
        branch(2, 1, 2, 4),
        branch(3, 1, 2, 4, current=True),
        branch(4, None, 0, 2),
        branch(5, 2, 4, 4),
    ]
    assert branching.active_path(branches) == {3: (2, 4), 1: (0, 2)}
    assert branching.fork_points(branches) == {3: [1, 2, 3], 1: [1, 4]}
    assert branching.newest_branch(branches, 1, 1) == 3
    assert branching.newest_branch(branches, 1, 3) == 1
    assert branching.newest_branch(branches, 4, 1) == 4


def test_a_fork_of_another_session_is_not_a_fork_point():
    assert branching.fork_points([branch(7, 3, 4, 6, current=True)]) == {}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=7))
def test_branch_choices_of_a_random_tree_lead_to_their_version(rewinds):
    async def scenario():
        async with open_account() as account:
            session = await account.store.session()
            await session.append([{"role": "user", "content": "0"}, {"role": "assistant", "content": "a"}] * 3)
            for number, (to, is_repeated) in enumerate(rewinds):
                count = len(await session.messages())
                await session.rewind(min(to, count))
                text = "again" if is_repeated else f"version {number}"
                await session.append(
                    [{"role": "user", "content": text}, {"role": "assistant", "content": f"answer {number}"}]
                )
            messages, branches = await session.messages(), await session.branches.list()
            steps = await branching.branch_choices(session, messages, branches)
            for id, step in steps.items():
                assert 1 <= step.number <= step.total
                position = int(id.split(".")[1])
                for target in (step.before, step.after):
                    if target is not None:
                        await session.branches.switch(target)
                        message = (await session.messages(1, before=position + 1))[0]
                        new_steps = await branching.branch_choices(session, [message], await session.branches.list())
                        assert new_steps[message.id].total == step.total
                        assert (
                            new_steps[message.id].number
                            == step.number + (1 if target == step.after and target != step.before else -1)
                            or step.before == step.after
                        )

    run(scenario())


def test_pages_have_no_gap_and_begin_with_a_question():
    async def scenario():
        async with open_account() as account:
            session = await account.store.session()
            for number in range(100):
                await session.save_turn(
                    f"q {number}", [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]
                )
            view = await item_rendering.read_latest(account, session, CLOCK)
            item_keys = keys(view)
            while view.older:
                assert item_keys[0].startswith("m-")
                position = int(item_keys[0].partition(".")[2])
                assert (await session.message(f"1.{position}")).role == "user"
                view = await item_rendering.read_older(account, session, CLOCK, before=view.first)
                item_keys = keys(view) + item_keys
            assert len(item_keys) == len(set(item_keys)) == 200
            all_items = await item_rendering.read_between(account, session, CLOCK, first=1, last=None)
            assert keys(all_items) == item_keys
            middle = await item_rendering.read_around(account, session, CLOCK, position=150)
            assert middle.older
            assert middle.newer
            after = await item_rendering.read_between(
                account, session, CLOCK, first=middle.last + 1, last=middle.last + 60
            )
            assert after.first == middle.last + 1

    run(scenario())


def test_a_message_during_a_read_removes_nothing_from_the_page(monkeypatch):
    async def scenario():
        async with open_account() as account:
            session = await account.store.session()
            for number in range(60):
                await session.save_turn(f"q {number}", {"role": "assistant", "content": "a"})
            before = await item_rendering.read_latest(account, session, CLOCK)
            last_position = item_rendering._last_position

            async def last_position_then_append(session):
                position = await last_position(session)
                await session.save_turn("meanwhile", {"role": "assistant", "content": "b"})
                return position

            monkeypatch.setattr(item_rendering, "_last_position", last_position_then_append)
            after = await item_rendering.read_between(account, session, CLOCK, first=before.first, last=None)
            assert (after.first, after.last) == (before.first, before.last + 2)
            assert keys(after)[: len(keys(before))] == keys(before)

    run(scenario())


def test_compacted_messages_are_one_item():
    async def scenario():
        async with open_account() as account:
            session = await account.store.session()
            for number in range(90):
                await session.save_turn(f"q {number}", {"role": "assistant", "content": "a"})
            await session.compact(before="1.101", summary="the first fifty")
            view = await item_rendering.read_latest(account, session, CLOCK)
            assert keys(view)[0] == "m-1.121"
            view = await item_rendering.read_older(account, session, CLOCK, before=view.first)
            assert keys(view)[0] == "compaction-1"
            assert not view.older
            compaction = (await session.compactions.list())[0]
            inside = await item_rendering.read_compacted(account, session, CLOCK, compaction, None)
            assert keys(inside)[-1] == "m-1.100"
            assert inside.older
            earlier = await item_rendering.read_compacted(account, session, CLOCK, compaction, inside.first)
            assert keys(earlier)[0] == "m-1.1"
            around = await item_rendering.read_around(account, session, CLOCK, position=50)
            assert "m-1.50" in keys(around)

    run(scenario())


def split_text(text, size):
    return [text[at : at + size] for at in range(0, len(text), size)]


class FakePage:
    """The copy of a live answer in a browser, built from the changes that it received."""

    def __init__(self):
        self.version, self.blocks = -1, []

    async def take(self, answer):
        changes = await answer.changes(self.version)
        for index, *rest in changes["blocks"]:
            block = answer.blocks[index]
            if len(rest) == 2:
                unchanged_count, html = rest
                assert "".join(self.blocks[index][:unchanged_count]) + html == "".join(block.stream.blocks)
            else:
                assert rest[0] == block.to_html()
                if index == len(self.blocks):
                    self.blocks.append(None)
            self.blocks[index] = list(block.stream.blocks) if block.stream is not None else [rest[0]]
        del self.blocks[changes["count"] :]
        self.version = changes["version"]


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 9), st.lists(st.integers(0, 2), min_size=1, max_size=60))
def test_a_live_answer_looks_like_the_stored_answer(size, looks):
    """Two pages that read at different times end with the same blocks, which are those of the stored answer."""
    text = "# Title\n\nOne *two* three.\n\n1. a\n2. b\n\n```python\nx = 1\n```\n\n| a |\n|---|\n| 1 |\n\nEnd."
    call = ToolCallPart(call_id="c", tool="look", arguments={"query": "x"})
    events = [ReasoningDelta(text=chunk) for chunk in split_text("I think so.", size)]
    events += [TextDelta(text=chunk) for chunk in split_text(text, size)]
    reasoning = ReasoningPart(text="I think so.", metadata={"duration_ms": 2000})
    first = Draft(role="assistant", parts=(reasoning, TextPart(text=text), call))
    events += [Responded(message=first), ToolStarted(call_id="c", tool="look", arguments=call.input)]
    result = tool_finished_event(call, "success", "found", 40)
    events += [
        result,
        TextDelta(text="Done."),
        Responded(message=Draft(role="assistant", parts=(TextPart(text="Done."),))),
    ]

    async def scenario():
        live = TurnRun("s")
        live.turn = "1.1"
        answer = live_answer_of(live)
        pages = [FakePage(), FakePage()]
        for number, event in enumerate(events):
            live.add(event)
            look = looks[number % len(looks)]
            if look < 2:
                await pages[look].take(answer)
        for page in pages:
            await page.take(answer)
            assert page.version == answer.version
            assert len(page.blocks) == len(answer.blocks) == 4
        async with open_account() as account:
            session = await account.store.session()
            await session.append([{"role": "user", "content": "q"}])
            await session.append([first, result.message, Draft(role="assistant", parts=(TextPart(text="Done."),))])
            stored_html = (await item_rendering.read_latest(account, session, CLOCK)).items[-1].html
            for block in answer.blocks[:2] + answer.blocks[3:]:
                assert block.to_html() in stored_html
            assert "look" in answer.blocks[2].to_html()

    run(scenario())


def test_each_file_of_several_tool_results_has_its_own_link():
    def file(name):
        return {"kind": "attachment", "mime_type": "text/plain", "name": name, "text": f"this is {name}"}

    def result(call, *names):
        return {"kind": "tool_result", "call_id": call, "status": "success", "content": [file(name) for name in names]}

    async def scenario():
        async with open_account() as account:
            session = await account.store.session("s/1", exist_ok=False)
            calls = [{"kind": "tool_call", "call_id": name, "tool": "get", "arguments": {}} for name in ("one", "two")]
            await session.append({"role": "user", "content": "get them"})
            await session.append({"role": "assistant", "parts": calls})
            results = [result("one", "a"), result("two", "b", "c"), result("lost", "d")]
            await session.append({"role": "tool", "parts": results})
            html = "".join(item.html for item in (await item_rendering.read_latest(account, session, CLOCK)).items)
            links = re.findall(r'href="/files/s%2F1/([^/"]+)/([^"]+)"', html)
            assert [part_path for _, part_path in links] == ["0.0", "1.0", "1.1", "2.0"]
            message = await session.message(links[0][0])
            assert [conversation._find_attachment(message, part_path).name for _, part_path in links] == [
                "a",
                "b",
                "c",
                "d",
            ]
            assert {message_id for message_id, _ in links} == {message.id}

    run(scenario())


def parse_event(chunk):
    lines = dict(line.split(": ", 1) for line in chunk.decode().strip().split("\n") if ": " in line)
    return lines.get("event"), json.loads(lines.get("data", "{}")), lines.get("id")


def test_the_event_stream_reports_changes_and_progress_and_resumes():
    async def scenario():
        async with open_account() as account:
            session = await account.store.session()
            stream = live_updates.follow_events(account, [session.id], None)
            hello = (await anext(stream)).split(b"\n\n", 1)[1]
            assert parse_event(hello)[1] == {"missed": True}
            started = await actions.send_message(account, session.id, "echo one")
            events = []
            async for chunk in stream:
                events.append(parse_event(chunk))
                if events[-1][0] == "ended":
                    break
            await stream.aclose()
            assert {name for name, _, _ in events} >= {"change", "progress", "ended"}
            assert events[-1][1]["turn"] == started.turn
            cursor = [id for _, _, id in events if id][-1]
            count = account.feed.count
            await session.update(title="Meanwhile")
            while account.feed.count == count:
                await asyncio.sleep(0.01)
            resumed_stream = live_updates.follow_events(account, [], cursor)
            hello = (await anext(resumed_stream)).split(b"\n\n", 1)[1]
            assert parse_event(hello)[1] == {"missed": False}
            name, change, _ = parse_event(await anext(resumed_stream))
            assert (name, change["session"]) == ("change", session.id)
            assert change["running"] is False
            await resumed_stream.aclose()
            assert account.feed.watchers == set()
            other_stream = live_updates.follow_events(account, [], "elsewhere.7")
            assert parse_event((await anext(other_stream)).split(b"\n\n", 1)[1])[1] == {"missed": True}
            account.closing.set()
            assert [chunk async for chunk in other_stream] == []

    run(scenario())


def test_the_end_of_a_run_is_reported_late_and_before_the_next_run():
    async def scenario():
        wake = asyncio.Event()
        session = live_updates.FollowedSession("s", wake)
        first, second = TurnRun("s"), TurnRun("s")
        first.turn, second.turn = "1.1", "1.3"
        first.end()
        # The run ended before the first read, so its progress is omitted.
        events = [parse_event(chunk)[:2] for chunk in await session.new_events(first)]
        assert events == [("ended", {"session": "s", "turn": "1.1"})]
        assert await session.new_events(first) == []
        second.add(TextDelta(text="start"))
        assert [parse_event(chunk)[0] for chunk in await session.new_events(second)] == ["progress"]
        third = TurnRun("s")
        third.turn = "1.5"
        second.end()
        third.add(TextDelta(text="at once"))
        later_events = [(name, data["turn"]) for name, data, _ in map(parse_event, await session.new_events(third))]
        assert later_events == [("ended", "1.3"), ("progress", "1.5")]
        assert (second.watchers, third.watchers) == (set(), {wake})

    run(scenario())


def test_only_the_last_of_several_changes_has_a_cursor():
    async def scenario():
        async with open_account() as account:
            await account.feed.start()
            start = account.feed.cursor_at(account.feed.count)
            created_ids = [(await account.store.session()).id for _ in range(3)]
            while account.feed.count < 3:
                await asyncio.sleep(0.01)
            stream = live_updates.follow_events(account, [], start)
            hello = parse_event((await anext(stream)).split(b"\n\n", 1)[1])
            assert hello[1:] == ({"missed": False}, start)
            events = [parse_event(await anext(stream)) for _ in created_ids]
            await stream.aclose()
            assert [data["session"] for _, data, _ in events] == created_ids
            assert [id for _, _, id in events] == [None, None, account.feed.cursor_at(account.feed.count)]

    run(scenario())


@pytest.mark.parametrize(
    ("name", "expected"),
    [("../../etc/passwd", "passwd"), ("C:\\a\\b.txt", "b.txt"), ("\u202egnp.exe\n", "gnp.exe"), ("", "file"), (None, "file"), ("a" * 400, "a" * 200)],
)  # fmt: skip
def test_file_names_lose_folders_and_control_characters(name, expected):
    assert _clean_file_name(name) == expected


def test_the_type_of_a_file_is_detected_from_its_content():
    assert _detect_mime_type(b"\x89PNG\r\n\x1a\nrest", "a.html", "text/html") == "image/png"
    assert _detect_mime_type(b"<script>", "a.png", "image/png") == "text/plain"
    assert _detect_mime_type(b"\0\1\2", "a.png", "image/png") == "application/octet-stream"
    assert _detect_mime_type(b"<svg/>", "a.svg", "image/svg+xml") == "image/svg+xml"


def test_the_charset_is_in_the_content_type_once(api, session, server):
    api.post(f"{session}/messages", json={"messages": [{"role": "user", "content": "x"}]})
    page = f"{server.url}/page/conversation/s%2F1"
    for path in (
        f"{server.url}/c/s%2F1", f"{server.url}/usage", f"{server.url}/static/frame.css", f"{server.url}/static/frame.js",
        f"{server.url}/page/sessions", page, f"{page}/text?first=1.1&last=1.1", f"{server.url}/page/export?scope=all&format=md",
        f"{server.url}/page/export?scope=all&format=html", f"{server.url}/static/nothing.css",
    ):  # fmt: skip
        kind = api.get(path).headers["content-type"]
        assert kind.count("charset") == (1 if kind.startswith("text/") else 0), (path, kind)
    with api.stream("GET", f"{server.url}/events") as stream:
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"


def test_a_broken_link_is_a_page_for_browsers_and_a_problem_for_programs(api, server):
    path = f"{server.url}/c/%3Cb%3Enobody"
    response = api.get(path, headers={"Sec-Fetch-Mode": "navigate"})
    assert response.status_code == 404
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "&lt;b&gt;nobody" in response.text
    assert "<b>nobody" not in response.text
    assert api.get(path).json()["code"] == "session-not-found"
    assert api.get("/sessions/nobody", headers={"Sec-Fetch-Mode": "navigate"}).json()["code"] == "session-not-found"


def test_the_start_page_redirects_to_any_id(api, server):
    def start_location():
        answer = api.get(f"{server.url}/", headers={"Sec-Fetch-Mode": "navigate"}, follow_redirects=False)
        assert answer.status_code == 303
        return answer.headers["location"]

    for id, segment in (
        (".", "~."),
        ("..", "~.."),
        ("~.", "~~."),
        ("a\r\nX: y", "a%0D%0AX%3A%20y"),
        ("a/b%", "a%2Fb%25"),
    ):
        assert api.post("/sessions", json={"id": id}).status_code == 201
        api.put("/last-session", json={"session": id})
        assert start_location() == f"/c/{segment}"
        page = api.get(f"{server.url}/c/{segment}", headers={"Sec-Fetch-Mode": "navigate"})
        assert page.status_code == 200


def test_the_app_imports_no_unused_libraries():
    code = (
        "import sys\nfrom recollect.server import app\nfrom recollect.server.account import Accounts\n"
        "app.create_app(Accounts(':memory:', lambda store: None), {'t': ''})\n"
        "sys.exit(any(name in sys.modules for name in ('pydantic', 'attrs', 'pygments.lexers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_untitled_conversation_is_named_by_its_first_words():
    async def scenario():
        async with open_account() as account:
            store = account.store
            session = await store.session("cli:coat")
            await session.append(
                [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "A coat? In May."}]
            )
            fork = await session.fork(title="A coat of paint")
            delegate = await store.session("cli:coat:delegate:tailor", parent="cli:coat")
            await delegate.append({"role": "user", "content": "Sew a coat"})
            new = await store.session()
            assert (await conversation.header_values(account, session))["title"] == "A coat?"
            assert (await conversation.header_values(account, fork))["title"] == "A coat of paint"
            assert (await conversation.header_values(account, new))["title"] == "New chat"
            hits = await store.search("coat", delegates=True)
            groups = search.group_hits(hits, CLOCK, await search.look_up_sessions(account, hits))
            assert {group.session: (group.title, group.note) for group in groups} == {
                session.id: ("A coat?", "cli"),
                fork.id: ("A coat of paint", "fork"),
                delegate.id: ("Sew a coat", "cli · sub-agent"),
            }
            await store.delete_session(session.id)
            assert search.group_hits(hits, CLOCK, await search.look_up_sessions(account, hits))[0].hits

    run(scenario())


def test_a_tool_call_stored_with_its_result_shows_no_duration():
    async def scenario():
        async with open_account() as account:
            session = await account.store.session("a")
            await session.append(
                [
                    {"role": "assistant", "content": None, "tool_calls": [
                        {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
                    {"role": "tool", "tool_call_id": "c", "content": "a sock"},
                ],
                format="openai",
            )  # fmt: skip
            view = await item_rendering.read_latest(account, session, CLOCK)
            assert "a sock" in view.items[-1].html
            assert not re.search(r"\b\d+ ms\b", view.items[-1].html)

    run(scenario())


@pytest.mark.parametrize("want", ["news", "older", "newer"])
def test_a_session_deleted_during_a_read_is_reported_as_deleted(monkeypatch, want):
    async def scenario():
        async with open_account() as account:
            session = await account.store.session("web:deleted")
            await session.append({"role": "user", "content": "hello"})
            for name in ("read_between", "read_older"):
                read = getattr(item_rendering, name)

                async def delete_then_read(*args, read=read, **options):
                    await account.store.delete_session("web:deleted")
                    return await read(*args, **options)

                monkeypatch.setattr(item_rendering, name, delete_then_read)
            request = types.SimpleNamespace(cookies={})
            items_request = conversation.ItemsRequest(want=want, first=1, last=1)
            response = await conversation.conversation_items.fn(request, account, "web:deleted", items_request)
            assert response == {"gone": "trash"}

    run(scenario())


def test_a_session_deleted_during_a_list_is_untitled():
    async def scenario():
        async with open_account() as account:
            session = await account.store.session("untitled")
            await session.append({"role": "user", "content": "words"})
            assert await session_rows.read_first_words(session) == "words"
            await account.store.delete_session("untitled")
            assert await session_rows.session_title(session) == session_rows.UNTITLED
            await account.store.erase_session("untitled", deleted=True)
            assert await session_rows.session_title(session) == session_rows.UNTITLED

    run(scenario())
