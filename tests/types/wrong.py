"""Mistakes. Each line with the mark is an error for every checker, and no other line is."""

import recollect
from recollect import Sesion  # error

store = recollect.oepn("sessions.db")  # error
right = recollect.open("sessions.db")
session = right.session("a")
right.session("a", titel="x")  # error
right.session("a", status="sucess")  # error
right.create_session("a")  # error
right.run(None)  # error
right.session("a", add_labels=["x"])  # error
session.fork(add_labels=["x"])  # error
session.update(add_labels="x", remove_labels=5)  # error
session.update(titel="x")  # error
session.fork(parent="b")  # error
session.update(relation="sibling")  # error
recollect.Draft(role="user", created_at=1.5)  # error
session.created_at / 1000  # error
session.messages()[0].edited_at.year  # error
session.update(pinned="yes")  # error
session.fork(colr="red")  # error
session.append([], update={"titel": "x"})  # error
session.append([], update={"pinned": "yes"})  # error
session.append([], after=1.5)  # error
session.rewind(1, expected="1")  # error
session.append("Hello")  # error
session.append(["Hello"])  # error
session.append({"role": "user", "content": "Hello"}, format="antropic")  # error
session.history("antropic")  # error
session.history("anthropic").repair  # error
session.history("antropic", last=5)  # error
session.history("cohere")  # error
session.history("openai", last="5")  # error
session.messages(after=1.5)  # error
session.messages(limit="5")  # error
session.save_turn("q", "a")  # error
session.turn({"role": "user", "content": "q"}).add("a")  # error
recollect.formats.raed  # error
recollect.formats.parse({"role": "user", "content": "Hello"}, "antropic")  # error
recollect.formats.parse("Hello")  # error
recollect.formats.render([], "cohere")  # error
recollect.formats.render({"role": "user"}, "openai")  # error
recollect.Draft(role="user").replace(metdata={})  # error
recollect.Draft(role="user").replace(role="robot")  # error
recollect.storage.sesions  # error


def handle_errors() -> None:
    try:
        session.refresh()
    except recollect.SesionBusy:  # error
        session.refresh()


async def use_async_store() -> None:
    async with recollect.open_async(":memory:") as store:
        async_session = await store.session("a")
        await store.session("a", titel="x")  # error
        await async_session.update(titel="x")  # error
        await async_session.append("Hello")  # error
        await async_session.history("antropic")  # error
        await async_session.messages(after=1.5)  # error
        await async_session.fork(colr="red")  # error
        turn = await async_session.turn("q")
        await turn.add("a")  # error
