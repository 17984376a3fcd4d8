"""Mistakes. Each line with the mark is an error for every checker, and no other line is."""

import recollect
from recollect import Sesion  # error

store = recollect.oepn("talks.db")  # error
right = recollect.open("talks.db")
session = right.session("a")
right.session("a", titel="x")  # error
right.create_session("a", status="sucess")  # error
session.update(titel="x")  # error
session.update(parent="b")  # error
session.update(pinned="yes")  # error
session.fork(colour="red")  # error
session.append("Hello")  # error
session.append(["Hello"])  # error
session.append({"role": "user", "content": "Hello"}, format="antropic")  # error
session.history("antropic")  # error
session.history("anthropic").repair  # error
session.save_turn("q", "a")  # error
session.turn({"role": "user", "content": "q"}).add("a")  # error
recollect.formats.raed  # error
recollect.ops.sesions  # error


def handled() -> None:
    try:
        session.refresh()
    except recollect.SesionBusy:  # error
        session.refresh()


async def awaited() -> None:
    async with recollect.open_async(":memory:") as store:
        talk = await store.session("a")
        await store.session("a", titel="x")  # error
        await talk.update(titel="x")  # error
        await talk.append("Hello")  # error
        await talk.history("antropic")  # error
        await talk.fork(colour="red")  # error
        turn = await talk.turn("q")
        await turn.add("a")  # error
