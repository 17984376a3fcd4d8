"""Choosing a session: type to search, see what it is about, open, rename, fork or delete it. Every key is shown."""

from __future__ import annotations

import textwrap
import time
from typing import Any, NamedTuple

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    VSplit,
    Window,
)
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.styles import Style

from recollect.channels.terminal.safe import cut, line
from recollect.errors import RecollectError
from recollect.store_async import AsyncSession, AsyncStore

_MOST = 200
_PREVIEWED = 8
_QUOTED = 400
_WIDE = 100
_STYLE = Style.from_dict({
    "title": "bold", "chosen": "reverse", "dim": "ansibrightblack", "key": "bold", "you": "bold ansicyan",
    "note": "ansiyellow",
})  # fmt: skip
_KEYS = (
    ("Enter", "open"), ("Ctrl-R", "rename"), ("Ctrl-F", "fork"), ("Ctrl-X", "delete"),
    ("Ctrl-Z", "undo"), ("Esc", "leave"),
)  # fmt: skip


_ESCAPE = 0.1
"""Seconds after which Esc is a key by itself."""


class Row(NamedTuple):
    """A session in the list, how many messages it has without tool steps, and what of it fits the search."""

    session: AsyncSession
    messages: int = 0
    fits: str = ""

    @property
    def title(self) -> str:
        """What it is called."""
        return line(_called(self.session))


class Picker:
    """The screen on which a session is chosen."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._rows: list[Row] = []
        self._chosen = 0
        self._note = ""
        self._previews: dict[tuple[str, int], list[tuple[str, str]]] = {}
        self._deleted: list[str] = []
        self._renames = False
        self._search = Buffer(multiline=False, on_text_changed=lambda _: self._soon(self._load()))
        self._title = Buffer(multiline=False)
        self._app: Application[str | None] = self._made()
        # Esc is the beginning of other keys: for those one need not wait as long as for what a person types.
        self._app.ttimeoutlen = self._app.timeoutlen = _ESCAPE

    async def run(self) -> str | None:
        """Show it; give the id of the session that was chosen, or None."""
        await self._load()
        return await self._app.run_async()

    def _soon(self, work: Any) -> None:
        self._app.create_background_task(self._told(work))

    async def _told(self, work: Any) -> None:
        """Do something, and tell what is wrong: another window may have taken the session away."""
        try:
            await work
        except RecollectError as error:
            self._note = cut(str(error), max(self._columns - 2, 20))
            self._app.invalidate()

    async def _load(self) -> None:
        words = self._search.text.strip()
        found = await self._store.list_sessions(_MOST)
        rows = [Row(session) for session in found if _matches(session, words)]
        if words:
            rows += await self._by_text(words, {row.session.id for row in rows})
        counts = await self._store.shown_counts([row.session for row in rows])
        rows = [row._replace(messages=count) for row, count in zip(rows, counts, strict=True)]
        if words == self._search.text.strip():
            self._rows, self._chosen = rows, min(self._chosen, max(len(rows) - 1, 0))
            self._look()

    async def _by_text(self, words: str, known: set[str]) -> list[Row]:
        rows: list[Row] = []
        try:
            hits = await self._store.search(words, limit=_MOST // 4)
        except RecollectError:
            return []  # half a query is no query yet
        for hit in hits:
            if hit.session not in known and (session := await self._store.get_session(hit.session)) is not None:
                known.add(hit.session)
                rows.append(Row(session, fits=line(hit.text)))
        return rows

    @property
    def _here(self) -> AsyncSession | None:
        return self._rows[self._chosen].session if self._rows else None

    def _look(self) -> None:
        """Read the preview of the chosen session, unless it is known."""
        session = self._here
        if session is not None and (session.id, session.revision) not in self._previews:
            self._soon(self._preview(session))
        self._app.invalidate()

    async def _preview(self, session: AsyncSession) -> None:
        said = [
            ("class:you", "> " + cut(message.text, _QUOTED))
            if message.role == "user"
            else ("", cut(message.text, _QUOTED))
            for message in await session.messages(_PREVIEWED)
            if message.text and message.role in ("user", "assistant")
        ]
        self._previews[session.id, session.revision] = said or [("class:dim", "Nothing was said yet.")]
        self._app.invalidate()

    def _made(self) -> Application[str | None]:
        renames = Condition(lambda: self._renames)
        wide = Condition(lambda: self._columns >= _WIDE)
        beside = Window(FormattedTextControl(self._previewed), wrap_lines=True)
        below = Window(FormattedTextControl(self._previewed), wrap_lines=True, height=Dimension.exact(8))
        rows = Window(FormattedTextControl(self._listed), wrap_lines=False)
        body = VSplit([
            HSplit([rows, ConditionalContainer(HSplit([_rule(), below]), ~wide)]),
            ConditionalContainer(VSplit([_bar(), beside]), wide),
        ])  # fmt: skip
        searched = Window(BufferControl(self._search, [BeforeInput("Search: ", "class:title")]), height=1)
        retitled = Window(BufferControl(self._title, [BeforeInput("New title: ", "class:note")]), height=1)
        self._field, self._title_field = searched, retitled
        top = HSplit([ConditionalContainer(searched, ~renames), ConditionalContainer(retitled, renames)])
        foot = Window(FormattedTextControl(self._footer), height=1)
        layout = Layout(HSplit([top, _rule(), body, foot]), focused_element=searched)
        return Application(layout, key_bindings=self._keys(renames), style=_STYLE, full_screen=True)

    @property
    def _columns(self) -> int:
        return self._app.output.get_size().columns

    def _listed(self) -> StyleAndTextTuples:
        if not self._rows:
            nothing = "Nothing fits." if self._search.text.strip() else "There are no conversations yet."
            return [("class:dim", f" {nothing}")]
        size = self._app.output.get_size()
        room = max(size.rows - (4 if size.columns >= _WIDE else 13), 3)
        first = max(0, min(self._chosen - room // 2, len(self._rows) - room))
        shown: StyleAndTextTuples = []
        width = size.columns // 2 - 2 if size.columns >= _WIDE else size.columns - 2
        for index, row in enumerate(self._rows[first : first + room], first):
            shown += [*self._line(row, width, chosen=index == self._chosen), ("", "\n")]
        return shown

    def _line(self, row: Row, width: int, *, chosen: bool) -> StyleAndTextTuples:
        pin = "\u2022 " if row.session.pinned_at else "  "
        about = f"{_ago(row.session.active_at)}  {row.messages:>5} "
        title = cut(row.title + (f"  {row.fits}" if row.fits else ""), width - len(about) - 3)
        text = f"{pin}{title:<{width - len(about) - 2}}{about}"
        return [("class:chosen" if chosen else "", text)]

    def _previewed(self) -> StyleAndTextTuples:
        session = self._here
        if session is None:
            return []
        called = _called(session)
        below = ([] if called == session.id else [line(session.id)]) + [line(session.model or "no model yet")]
        head: StyleAndTextTuples = [
            ("class:title", cut(called, 80)), ("", "\n"),
            ("class:dim", "\n".join(below) + "\n\n"),
        ]  # fmt: skip
        columns = self._columns
        width = columns - columns // 2 - 3 if columns >= _WIDE else columns - 1
        for style, text in self._previews.get((session.id, session.revision), []):
            head += [(style, "\n".join(textwrap.wrap(text, width))), ("", "\n\n")]
        return head

    def _footer(self) -> StyleAndTextTuples:
        if self._note:
            return [("class:note", f" {self._note}")]
        keys = (("Enter", "rename"), ("Esc", "leave it as it is")) if self._renames else _KEYS
        shown: StyleAndTextTuples = []
        for key, does in keys:
            shown += [("class:key", f" {key}"), ("class:dim", f" {does} ")]
        return shown

    def _keys(self, renames: Condition) -> KeyBindings:
        keys = KeyBindings()
        bind = {
            ("up",): lambda: self._move(-1), ("c-p",): lambda: self._move(-1), ("pageup",): lambda: self._move(-10),
            ("down",): lambda: self._move(1), ("c-n",): lambda: self._move(1), ("pagedown",): lambda: self._move(10),
            ("enter",): self._open, ("c-r",): self._rename, ("c-f",): lambda: self._soon(self._fork()),
            ("c-x",): lambda: self._soon(self._delete()), ("c-z",): lambda: self._soon(self._restore()),
            ("escape",): lambda: self._app.exit(result=None), ("c-c",): lambda: self._app.exit(result=None),
        }  # fmt: skip
        for key, work in bind.items():
            keys.add(*key, filter=~renames, eager=key != ("escape",))(_does(work))
        keys.add("enter", filter=renames)(_does(lambda: self._soon(self._retitle())))
        keys.add("escape", filter=renames)(_does(self._leave_title))
        keys.add("c-c", filter=renames)(_does(self._leave_title))
        return keys

    def _move(self, by: int) -> None:
        self._note = ""
        self._chosen = max(0, min(self._chosen + by, len(self._rows) - 1))
        self._look()

    def _open(self) -> None:
        if self._here is not None:
            self._app.exit(result=self._here.id)

    def _rename(self) -> None:
        if self._here is not None:
            self._renames = True
            self._title.text = self._here.title or ""
            self._title.cursor_position = len(self._title.text)
            self._app.layout.focus(self._title_field)

    def _leave_title(self) -> None:
        self._renames = False
        self._app.layout.focus(self._field)

    async def _retitle(self) -> None:
        session, title = self._here, self._title.text.strip()
        self._leave_title()
        if session is not None and title:
            await session.update(title=title)
            self._note = f"Renamed to {cut(title, 60)}."
            await self._load()

    async def _fork(self) -> None:
        if self._here is not None:
            fork = await self._here.fork(title=f"{self._here.title} (fork)" if self._here.title else None)
            self._app.exit(result=fork.id)

    async def _delete(self) -> None:
        if self._here is not None:
            session = self._here
            await self._store.delete_session(session.id)
            self._deleted.append(session.id)
            self._note = f"{cut(_called(session), 50)} is in the trash. Ctrl-Z brings it back."
            await self._load()

    async def _restore(self) -> None:
        if self._deleted:
            try:
                session = await self._store.restore_session(self._deleted.pop())
            except RecollectError as error:
                self._note = cut(str(error), 100)
                return
            self._note = f"{cut(_called(session), 50)} is back."
            await self._load()


def _called(session: AsyncSession) -> str:
    """Give what a person calls a session: its title, that it is new, or else its id."""
    return session.title or (session.id if session.message_count else "New conversation")


def _matches(session: AsyncSession, words: str) -> bool:
    told = f"{_called(session)} {session.id}".lower()
    return all(word in told for word in words.lower().split())


def _does(work: Any) -> Any:
    def does(event: KeyPressEvent) -> None:
        del event
        work()

    return does


def _ago(then: int) -> str:
    minutes = max(int(time.time() - then / 1000) // 60, 0)
    for size, unit in ((525_600, "y"), (43_200, "mo"), (1_440, "d"), (60, "h")):
        if minutes >= size:
            return f"{minutes // size}{unit}".rjust(5)
    return (f"{minutes}m" if minutes else "now").rjust(5)


def _rule() -> Window:
    return Window(char="\u2500", height=1, style="class:dim")


def _bar() -> Window:
    return Window(char="\u2502", width=1, style="class:dim")
