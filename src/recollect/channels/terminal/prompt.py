"""The input line: one or several lines, history with the arrow keys, completion of commands and sessions, and menus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings
from prompt_toolkit.styles import Style

from recollect.agent.commands import COMMANDS
from recollect.channels.terminal.conversation import MenuChoice, MenuOption
from recollect.channels.terminal.sanitize import clean_line
from recollect.channels.terminal.type_ahead import terminal_input
from recollect.model.humanize import escape_unprintable

_STYLE = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "bottom-toolbar": "noreverse fg:ansibrightblack",
        "chosen": "bold",
        "hint": "fg:ansibrightblack",
    }
)
_SESSION_COMMANDS = ("/resume ",)


class InputCompleter(Completer):
    """Completes commands at the start of a line, and sessions after /resume."""

    def __init__(self) -> None:
        self.sessions: list[tuple[str, str]] = []
        """Ids and titles of the sessions that can be resumed."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the matching commands or sessions."""
        del complete_event
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        if text.startswith(_SESSION_COMMANDS):
            yield from self._sessions(text.partition(" ")[2])
        elif " " not in text:
            for command in COMMANDS.values():
                if f"/{command.name}".startswith(text.lower()):
                    yield Completion(f"/{command.name}", -len(text), display=command.usage, display_meta=command.help)

    def _sessions(self, prefix: str) -> Iterable[Completion]:
        for id, title in self.sessions:
            shown_id = escape_unprintable(id)
            word = id if id.isprintable() and id == id.strip() else title  # the line cannot contain every id
            if word and (id.startswith(prefix) or prefix.lower() in title.lower()):
                yield Completion(word, -len(prefix), display=clean_line(title) or shown_id, display_meta=shown_id)


class InputPrompt:
    """Reads messages and commands from the terminal."""

    def __init__(self, toolbar: str) -> None:
        self.completer = InputCompleter()
        self.toolbar = toolbar
        self._status = ""
        self._menu: Menu | None = None
        self.unsent = ""
        """The text of the input line when the last menu closed."""
        self._input = terminal_input()
        self._session: PromptSession[str] = PromptSession(
            input=self._input,
            history=InMemoryHistory(),
            completer=self.completer,
            complete_while_typing=True,
            multiline=True,
            key_bindings=_input_keys(),
            style=_STYLE,
            bottom_toolbar=self._render_toolbar,
            prompt_continuation=lambda width, _, __: " " * width,
            reserve_space_for_menu=6,
        )

    def _render_toolbar(self) -> StyleAndTextTuples:
        status = f" {self._status} \u00b7" if self._status else ""
        return [("class:bottom-toolbar", f"{status} {self.toolbar}")]

    def remember(self, messages: Sequence[str]) -> None:
        """Add earlier messages to the history of the arrow keys."""
        for text in messages:
            self._session.history.append_string(text)

    def status(self, text: str) -> None:
        """Show a status before the key hints."""
        if text != self._status:
            self._status = text
            self._session.app.invalidate()

    async def draw_above(self, draw: Callable[[], None]) -> None:
        """Draw above the input line, which is not changed."""
        if self._session.app.is_running or self._menu is not None:
            await run_in_terminal(draw)
        else:
            draw()

    async def read(self, initial: str = "") -> str:
        """Read one input. Ctrl-D on an empty line is an EOFError, Ctrl-C a KeyboardInterrupt."""
        return await self._session.prompt_async([("class:prompt", "> ")], default=initial)

    async def choose(
        self, options: Sequence[MenuOption], *, initial: str = "", default: int | None = 0, text_hint: str = ""
    ) -> MenuChoice:
        """Show a menu above an input line and return the choice, or the message that was entered instead.

        Arrow keys and Enter on an empty line choose, as does the key of an option. All other keys are text. `default`
        is the option that Enter chooses at first; None chooses nothing. `text_hint` tells the person what Enter does
        with a text. Ctrl-D on an empty line is an EOFError, Ctrl-C a KeyboardInterrupt.
        """
        assert self._menu is None
        self._menu = Menu(options, default, text_hint, self._input)
        try:
            return await self._menu.run(initial)
        finally:
            self.unsent = self._menu.text
            self._menu = None


class Menu:
    """A menu with an input line below it."""

    def __init__(self, options: Sequence[MenuOption], default: int | None, text_hint: str, input: Any) -> None:
        self._options = options
        self._index = default
        self._text_hint = text_hint
        self._session: PromptSession[Any] = PromptSession(
            self._render,
            input=input,
            multiline=True,
            key_bindings=merge_key_bindings([_input_keys(), self._key_bindings()]),
            style=_STYLE,
            erase_when_done=True,
            prompt_continuation=lambda width, _, __: " " * width,
        )

    async def run(self, initial: str) -> MenuChoice:
        """Show the menu until an option is chosen or a message is entered."""
        answer = await self._session.prompt_async(default=initial)
        return answer if isinstance(answer, MenuChoice) else MenuChoice(None, answer)

    @property
    def text(self) -> str:
        """The text of the input line."""
        return self._session.default_buffer.text

    def _render(self) -> StyleAndTextTuples:
        width = max(len(option.text) for option in self._options)
        rows: StyleAndTextTuples = []
        for index, option in enumerate(self._options):
            is_current = index == self._index
            rows.append(("class:chosen" if is_current else "", f"{'>' if is_current else ' '} {option.text:{width}}"))
            rows.append(("class:hint", f"  {option.label}\n"))
        rows.append(("class:hint", f"Up, Down and Enter choose. Typed text is a message: {self._text_hint}\n"))
        return [*rows, ("class:prompt", "> ")]

    def _key_bindings(self) -> KeyBindings:
        keys = KeyBindings()
        empty = Condition(lambda: not self._session.default_buffer.text)

        def move(by: int) -> None:
            count = len(self._options)
            self._index = (0 if by > 0 else count - 1) if self._index is None else (self._index + by) % count

        @keys.add("up", filter=empty)
        def _(_: KeyPressEvent) -> None:
            move(-1)

        @keys.add("down", filter=empty)
        def _(_: KeyPressEvent) -> None:
            move(1)

        @keys.add("enter", filter=empty)
        def _(event: KeyPressEvent) -> None:
            if self._index is not None:
                event.app.exit(result=MenuChoice(self._options[self._index].name))

        for option in self._options:
            if option.key:
                keys.add(option.key)(_choose_handler(option.name))
        return keys


def _choose_handler(name: str) -> Callable[[KeyPressEvent], None]:
    def choose(event: KeyPressEvent) -> None:
        event.app.exit(result=MenuChoice(name, event.current_buffer.text))

    return choose


def _input_keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        state = buffer.complete_state
        if state is not None and state.current_completion is not None:
            buffer.apply_completion(state.current_completion)
        elif buffer.document.current_line_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline()
        elif buffer.text.strip():
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline()

    return keys
