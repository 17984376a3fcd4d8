"""Correct programs, as the README and docs/reference/formats.md show them. No checker reports an error in this file."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import anthropic
import openai
from anthropic.types import MessageParam
from openai.types.chat import ChatCompletionMessageParam

import recollect
from recollect import AsyncStore, DataPart, Draft, Message, SessionBusy, TextPart, formats, open_async
from recollect.types import Format


def with_anthropic(client: anthropic.Anthropic, session: recollect.Session) -> None:
    with session.turn("What is in README.md?") as turn:
        reply = client.messages.create(model="some-model", max_tokens=1000, messages=session.history("anthropic"))
        turn.add(reply)
    with client.messages.stream(model="m", max_tokens=9, messages=session.history("anthropic", 1000)) as stream:
        session.append(stream.get_final_message())


def with_openai(client: openai.OpenAI, session: recollect.Session) -> None:
    reply = client.chat.completions.create(model="some-model", messages=session.history("openai"))
    session.append(reply)
    session.append(reply.choices[0].message, format="openai")
    instructions: ChatCompletionMessageParam = {"role": "system", "content": "You are brief."}
    client.chat.completions.create(model="some-model", messages=[instructions, *session.history("openai")])
    session.append(client.responses.create(model="m", input=session.history("openai-responses"), store=False))


def values(store: recollect.Store) -> list[str]:
    session = store.session("cli:default", title="First session", metadata={"a": [1]}, parent=None)
    session.update(title=None, status="completed", pinned=True, expected=session.revision)
    session.append([], after=0, update={"title": "T", "pinned": False}, expected=session.revision)
    session.append(session.messages()[0], after=session.messages()[-1], update={})
    session.rewind("1.1", expected=session.revision).branches.switch(1, expected=session.revision)
    session.update(labels={"a", "b"}, parent=None, relation=None)
    session.update(add_labels=["c"]).update(remove_labels=["a"])
    session.fork(id="other", model="some-model", labels=[])
    store.list_sessions(label=["a", "b"], id_prefix="cli:", metadata={"a": 1}, relation="fork", oldest_first=True)
    typed: MessageParam = {"role": "user", "content": "Hello"}
    session.append(typed)
    session.append([typed, {"role": "assistant", "content": "Hi"}], format="anthropic", key="k")
    session.append(Draft(role="user", parts=(TextPart(text="x"), DataPart(data={"n": 1}))))
    for time in (datetime.datetime.now(datetime.UTC), datetime.date(2025, 11, 16), "2025-11-16T10:00Z", 1763287200123):
        session.append(Draft(role="user", created_at=time).replace(created_at=time))
    draft_time: datetime.datetime | None = Draft(role="user").created_at
    age: datetime.timedelta = datetime.datetime.now(datetime.UTC) - session.created_at
    edit_times: list[datetime.datetime | None] = [draft_time, *(item.edited_at for item in session.messages())]
    since: int = session.messages()[0].created_at_ms + len(edit_times) + age.days
    store.list_sessions(since=session.active_at, until=since)
    session.append(session.messages())
    session.append(message for message in session.messages())
    session.save_turn("q", {"role": "assistant", "content": "a"})
    owner, message = store.message(key="k")
    ids: list[str] = owner.delete_messages([owner.replace_message(message, typed, erase=True), "1.2", 3])
    is_restored = owner.restore_messages([ids[0]]) == [ids[0]]
    session.mark_message(session.pop(2)[0].id, {"restored": is_restored})
    repairs = session.history("anthropic").repairs
    return [repair.message or "" for repair in repairs] + [hit.session for hit in store.search("x")]


def conversions(client: anthropic.Anthropic, openai_client: openai.OpenAI, session: recollect.Session) -> None:
    drafts = formats.parse({"role": "user", "content": "Hello"}, "openai")
    drafts += formats.parse(
        client.messages.create(model="m", max_tokens=9, messages=formats.render(drafts, "anthropic"))
    )
    session.append([draft.replace(metadata={"uuid": "u"}, model="m") for draft in drafts])
    openai_client.chat.completions.create(model="m", messages=formats.render(session.messages(), "openai"))
    openai_client.responses.create(model="m", input=session.history("openai-responses", last=50))
    client.messages.create(model="m", max_tokens=9, messages=session.history("anthropic", last=50))
    cohere = formats.RegisteredFormat("cohere")
    session.append(formats.parse({"role": "USER", "message": "Hello"}, cohere), format=cohere)
    session.history(cohere, 1000)


def pages(session: recollect.Session) -> list[Message]:
    page = session.messages(after="1.2", limit=100)
    page += session.messages(before=page[0], limit=100) + session.messages(10, after=5, before=page[-1].id)
    return page + session.messages(after=datetime.datetime.now(datetime.UTC)) + session.messages(after="2025-11-16")


def errors(session: recollect.Session, format: Format, plain: dict[str, Any]) -> Message | None:
    try:
        session.append(plain, format)
    except SessionBusy:
        return None
    return session.messages(last=1)[0]


async def use_async_store(client: anthropic.AsyncAnthropic) -> None:
    store: AsyncStore
    async with open_async(":memory:") as store:
        session = await store.session("cli:default", title="First session")
        async with await session.turn("Hello") as turn:
            history = await session.history("anthropic")
            await turn.add(await client.messages.create(model="m", max_tokens=9, messages=history))
        await session.update(archived=True)


asyncio.run(use_async_store(anthropic.AsyncAnthropic()))
