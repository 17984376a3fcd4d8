"""The session picker: search, preview, open, rename, fork and delete. Every key is shown."""

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

from recollect.channels.terminal.sanitize import clean_line, truncate_line
from recollect.errors import RecollectError
from recollect.model.humanize import escape_unprintable, format_relative
from recollect.store_async import AsyncSession, AsyncStore

_MAX_ROWS = 200  # sessions, the latest ones; older ones are found by the search
_PREVIEW_MESSAGES = 8  # latest messages in the preview: about one screen
_MAX_PREVIEW_LENGTH = 400  # characters of a message in the preview
_WIDE_COLUMNS = 100  # with fewer columns the preview is below the list, not next to it
_TIME_WIDTH = 11  # columns of the longest relative time, "12 Mar 2024"
_STYLE = Style.from_dict({
    "title": "bold", "chosen": "reverse", "dim": "ansibrightblack", "key": "bold", "you": "bold ansicyan",
    "note": "ansiyellow",
})  # fmt: skip
_KEY_HINTS = (
    ("Enter", "open"), ("Ctrl-R", "rename"), ("Ctrl-F", "fork"), ("Ctrl-X", "delete"),
    ("Ctrl-Z", "undo"), ("Esc", "close"),
)  # fmt: skip


_ESCAPE_TIMEOUT = 0.1  # seconds after which Esc is a key of its own and not the start of an escape sequence


class PickerRow(NamedTuple):
    """A session in the list, its number of messages without tool steps, and a snippet of the search hit."""

    session: AsyncSession
    messages: int = 0
    snippet: str = ""

    @property
    def title(self) -> str:
        """The title, or else the id."""
        return clean_line(_session_label(self.session))


class Picker:
    """The full-screen list in which a person chooses a session."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._rows: list[PickerRow] = []
        self._index = 0
        self._note = ""
        self._previews: dict[tuple[str, int], list[tuple[str, str]]] = {}
        self._deleted: list[str] = []
        self._renaming = False
        self._search = Buffer(multiline=False, on_text_changed=lambda _: self._start(self._load()))
        self._title = Buffer(multiline=False)
        self._app: Application[str | None] = self._build_app()
        # Escape sequences arrive at once, so a short wait is enough to tell them from the Esc key.
        self._app.ttimeoutlen = self._app.timeoutlen = _ESCAPE_TIMEOUT

    async def run(self) -> str | None:
        """Show the picker; return the id of the chosen session, or None."""
        await self._load()
        return await self._app.run_async()

    def _start(self, coroutine: Any) -> None:
        self._app.create_background_task(self._run_and_report(coroutine))

    async def _run_and_report(self, coroutine: Any) -> None:
        """Await a coroutine and show its error: another window may have deleted the session."""
        try:
            await coroutine
        except RecollectError as error:
            self._note = truncate_line(str(error), max(self._columns - 2, 20))
            self._app.invalidate()

    async def _load(self) -> None:
        query = self._search.text.strip()
        sessions = await self._store.list_sessions(_MAX_ROWS)
        rows = [PickerRow(session) for session in sessions if _matches(session, query)]
        if query:
            rows += await self._search_text(query, {row.session.id for row in rows})
        counts = await self._store.shown_counts([row.session for row in rows])
        rows = [row._replace(messages=count) for row, count in zip(rows, counts, strict=True)]
        if query == self._search.text.strip():
            self._rows, self._index = rows, min(self._index, max(len(rows) - 1, 0))
            self._load_preview()

    async def _search_text(self, query: str, known_ids: set[str]) -> list[PickerRow]:
        rows: list[PickerRow] = []
        try:
            hits = await self._store.search(query, limit=_MAX_ROWS // 4)
        except RecollectError:
            return []  # the query is still being typed
        for hit in hits:
            if hit.session not in known_ids and (session := await self._store.get_session(hit.session)) is not None:
                known_ids.add(hit.session)
                rows.append(PickerRow(session, snippet=clean_line(hit.text)))
        return rows

    @property
    def _session(self) -> AsyncSession | None:
        return self._rows[self._index].session if self._rows else None

    def _load_preview(self) -> None:
        """Read the preview of the current session, unless it is cached."""
        session = self._session
        if session is not None and (session.id, session.revision) not in self._previews:
            self._start(self._read_preview(session))
        self._app.invalidate()

    async def _read_preview(self, session: AsyncSession) -> None:
        lines = [
            ("class:you", "> " + truncate_line(message.text, _MAX_PREVIEW_LENGTH))
            if message.role == "user"
            else ("", truncate_line(message.text, _MAX_PREVIEW_LENGTH))
            for message in await session.messages(_PREVIEW_MESSAGES)
            if message.text and message.role in ("user", "assistant")
        ]
        self._previews[session.id, session.revision] = lines or [("class:dim", "No messages yet.")]
        self._app.invalidate()

    def _build_app(self) -> Application[str | None]:
        renaming = Condition(lambda: self._renaming)
        wide = Condition(lambda: self._columns >= _WIDE_COLUMNS)
        side_preview = Window(FormattedTextControl(self._render_preview), wrap_lines=True)
        bottom_preview = Window(FormattedTextControl(self._render_preview), wrap_lines=True, height=Dimension.exact(8))
        rows = Window(FormattedTextControl(self._render_list), wrap_lines=False)
        body = VSplit([
            HSplit([rows, ConditionalContainer(HSplit([_rule(), bottom_preview]), ~wide)]),
            ConditionalContainer(VSplit([_bar(), side_preview]), wide),
        ])  # fmt: skip
        search_window = Window(BufferControl(self._search, [BeforeInput("Search: ", "class:title")]), height=1)
        title_window = Window(BufferControl(self._title, [BeforeInput("New title: ", "class:note")]), height=1)
        self._search_window, self._title_window = search_window, title_window
        top = HSplit([ConditionalContainer(search_window, ~renaming), ConditionalContainer(title_window, renaming)])
        footer = Window(FormattedTextControl(self._footer), height=1)
        layout = Layout(HSplit([top, _rule(), body, footer]), focused_element=search_window)
        return Application(layout, key_bindings=self._keys(renaming), style=_STYLE, full_screen=True)

    @property
    def _columns(self) -> int:
        return self._app.output.get_size().columns

    def _render_list(self) -> StyleAndTextTuples:
        if not self._rows:
            text = "No matching conversations." if self._search.text.strip() else "No conversations yet."
            return [("class:dim", f" {text}")]
        size = self._app.output.get_size()
        row_limit = max(size.rows - (4 if size.columns >= _WIDE_COLUMNS else 13), 3)
        first = max(0, min(self._index - row_limit // 2, len(self._rows) - row_limit))
        fragments: StyleAndTextTuples = []
        width = size.columns // 2 - 2 if size.columns >= _WIDE_COLUMNS else size.columns - 2
        for index, row in enumerate(self._rows[first : first + row_limit], first):
            fragments += [*self._line(row, width, is_current=index == self._index), ("", "\n")]
        return fragments

    def _line(self, row: PickerRow, width: int, *, is_current: bool) -> StyleAndTextTuples:
        pin = "\u2022 " if row.session.pinned_at else "  "
        active = format_relative(row.session.info.active_at_ms, time.time_ns() // 1_000_000)
        details = f"{active:>{_TIME_WIDTH}}  {row.messages:>5} "
        title = truncate_line(row.title + (f"  {row.snippet}" if row.snippet else ""), width - len(details) - 3)
        text = f"{pin}{title:<{width - len(details) - 2}}{details}"
        return [("class:chosen" if is_current else "", text)]

    def _render_preview(self) -> StyleAndTextTuples:
        session = self._session
        if session is None:
            return []
        label = _session_label(session)
        facts = ([escape_unprintable(session.id)] if session.title or not session.message_count else []) + [
            clean_line(session.model or "no model yet")
        ]
        fragments: StyleAndTextTuples = [
            ("class:title", truncate_line(label, 80)), ("", "\n"),
            ("class:dim", "\n".join(facts) + "\n\n"),
        ]  # fmt: skip
        columns = self._columns
        width = columns - columns // 2 - 3 if columns >= _WIDE_COLUMNS else columns - 1
        for style, text in self._previews.get((session.id, session.revision), []):
            fragments += [(style, "\n".join(textwrap.wrap(text, width))), ("", "\n\n")]
        return fragments

    def _footer(self) -> StyleAndTextTuples:
        if self._note:
            return [("class:note", f" {self._note}")]
        keys = (("Enter", "rename"), ("Esc", "cancel")) if self._renaming else _KEY_HINTS
        fragments: StyleAndTextTuples = []
        for key, action in keys:
            fragments += [("class:key", f" {key}"), ("class:dim", f" {action} ")]
        return fragments

    def _keys(self, renaming: Condition) -> KeyBindings:
        keys = KeyBindings()
        bindings = {
            ("up",): lambda: self._move(-1), ("c-p",): lambda: self._move(-1), ("pageup",): lambda: self._move(-10),
            ("down",): lambda: self._move(1), ("c-n",): lambda: self._move(1), ("pagedown",): lambda: self._move(10),
            ("enter",): self._open, ("c-r",): self._rename, ("c-f",): lambda: self._start(self._fork()),
            ("c-x",): lambda: self._start(self._delete()), ("c-z",): lambda: self._start(self._restore()),
            ("escape",): lambda: self._app.exit(result=None), ("c-c",): lambda: self._app.exit(result=None),
        }  # fmt: skip
        for key, action in bindings.items():
            keys.add(*key, filter=~renaming, eager=key != ("escape",))(_key_handler(action))
        keys.add("enter", filter=renaming)(_key_handler(lambda: self._start(self._retitle())))
        keys.add("escape", filter=renaming)(_key_handler(self._cancel_rename))
        keys.add("c-c", filter=renaming)(_key_handler(self._cancel_rename))
        return keys

    def _move(self, by: int) -> None:
        self._note = ""
        self._index = max(0, min(self._index + by, len(self._rows) - 1))
        self._load_preview()

    def _open(self) -> None:
        if self._session is not None:
            self._app.exit(result=self._session.id)

    def _rename(self) -> None:
        if self._session is not None:
            self._renaming = True
            self._title.text = self._session.title or ""
            self._title.cursor_position = len(self._title.text)
            self._app.layout.focus(self._title_window)

    def _cancel_rename(self) -> None:
        self._renaming = False
        self._app.layout.focus(self._search_window)

    async def _retitle(self) -> None:
        session, title = self._session, self._title.text.strip()
        self._cancel_rename()
        if session is not None and title:
            await session.update(title=title)
            self._note = f"Renamed to {truncate_line(title, 60)}."
            await self._load()

    async def _fork(self) -> None:
        if self._session is not None:
            fork = await self._session.fork(title=f"{self._session.title} (fork)" if self._session.title else None)
            self._app.exit(result=fork.id)

    async def _delete(self) -> None:
        if self._session is not None:
            session = self._session
            await self._store.delete_session(session.id)
            self._deleted.append(session.id)
            self._note = f"Moved {truncate_line(_session_label(session), 50)} to the trash. Ctrl-Z restores it."
            await self._load()

    async def _restore(self) -> None:
        if self._deleted:
            try:
                session = await self._store.restore_session(self._deleted.pop())
            except RecollectError as error:
                self._note = truncate_line(str(error), 100)
                return
            self._note = f"Restored {truncate_line(_session_label(session), 50)}."
            await self._load()


def _session_label(session: AsyncSession) -> str:
    """Return the title of a session, or its id, or that it is new."""
    return session.title or (escape_unprintable(session.id) if session.message_count else "New conversation")


def _matches(session: AsyncSession, query: str) -> bool:
    text = f"{_session_label(session)} {session.id}".lower()
    return all(word in text for word in query.lower().split())


def _key_handler(action: Any) -> Any:
    def handle(event: KeyPressEvent) -> None:
        del event
        action()

    return handle


def _rule() -> Window:
    return Window(char="\u2500", height=1, style="class:dim")


def _bar() -> Window:
    return Window(char="\u2502", width=1, style="class:dim")
