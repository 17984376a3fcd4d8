"""The input line: one line or several, what was said before with the arrow keys, completion of commands and names."""

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
from recollect.channels.terminal.ahead import terminal_input
from recollect.channels.terminal.safe import line
from recollect.channels.terminal.typed import Chosen, Option

_STYLE = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "bottom-toolbar": "noreverse fg:ansibrightblack",
        "chosen": "bold",
        "hint": "fg:ansibrightblack",
    }
)
_NAMED = ("/resume ",)


class Names(Completer):
    """Completes commands at the start of a line, and sessions after /resume."""

    def __init__(self) -> None:
        self.sessions: list[tuple[str, str]] = []
        """Id and title of the sessions that can be resumed."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Offer what fits."""
        del complete_event
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        if text.startswith(_NAMED):
            yield from self._sessions(text.partition(" ")[2])
        elif " " not in text:
            for command in COMMANDS.values():
                if f"/{command.name}".startswith(text.lower()):
                    yield Completion(f"/{command.name}", -len(text), display=command.usage, display_meta=command.help)

    def _sessions(self, begun: str) -> Iterable[Completion]:
        for id, title in self.sessions:
            if id.startswith(begun) or begun.lower() in title.lower():
                yield Completion(id, -len(begun), display=line(title or id), display_meta=line(id))


class Entry:
    """Reads what the person says."""

    def __init__(self, toolbar: str) -> None:
        self.names = Names()
        self.toolbar = toolbar
        self._status = ""
        self._menu: Menu | None = None
        self.unsent = ""
        """What stood in the input line when the last menu was left."""
        self._input = terminal_input()
        self._session: PromptSession[str] = PromptSession(
            input=self._input,
            history=InMemoryHistory(),
            completer=self.names,
            complete_while_typing=True,
            multiline=True,
            key_bindings=_keys(),
            style=_STYLE,
            bottom_toolbar=self._bar,
            prompt_continuation=lambda width, _, __: " " * width,
            reserve_space_for_menu=6,
        )

    def _bar(self) -> StyleAndTextTuples:
        told = f" {self._status} \u00b7" if self._status else ""
        return [("class:bottom-toolbar", f"{told} {self.toolbar}")]

    def remember(self, said: Sequence[str]) -> None:
        """Have what was said before at hand with the arrow keys."""
        for text in said:
            self._session.history.append_string(text)

    def status(self, text: str) -> None:
        """Show something for a while before the keys."""
        if text != self._status:
            self._status = text
            self._session.app.invalidate()

    async def above(self, draw: Callable[[], None]) -> None:
        """Draw something above the input, which stays as it is."""
        if self._session.app.is_running or self._menu is not None:
            await run_in_terminal(draw)
        else:
            draw()

    async def read(self, begin: str = "") -> str:
        """Read one input. Ctrl-D on an empty line is an EOFError, Ctrl-C a KeyboardInterrupt."""
        return await self._session.prompt_async([("class:prompt", "> ")], default=begin)

    async def choose(
        self, options: Sequence[Option], *, begin: str = "", default: int | None = 0, entered: str = ""
    ) -> Chosen:
        """Show a menu above an input line and return the choice, or the message that was entered instead.

        Arrow keys and Enter on an empty line choose, as does the key of an option. All other keys are text. `default`
        is the option that Enter chooses at first; with None it chooses nothing. `entered` says what Enter does with a
        text. Ctrl-D on an empty line is an EOFError, Ctrl-C a KeyboardInterrupt.
        """
        assert self._menu is None
        self._menu = Menu(options, default, entered, self._input)
        try:
            return await self._menu.run(begin)
        finally:
            self.unsent = self._menu.text
            self._menu = None


class Menu:
    """A menu on the screen, with an input line below it."""

    def __init__(self, options: Sequence[Option], default: int | None, entered: str, input: Any) -> None:
        self._options = options
        self._at = default
        self._entered = entered
        self._session: PromptSession[Any] = PromptSession(
            self._shown,
            input=input,
            multiline=True,
            key_bindings=merge_key_bindings([_keys(), self._choices()]),
            style=_STYLE,
            erase_when_done=True,
            prompt_continuation=lambda width, _, __: " " * width,
        )

    async def run(self, begin: str) -> Chosen:
        """Show it until something is chosen or entered."""
        answer = await self._session.prompt_async(default=begin)
        return answer if isinstance(answer, Chosen) else Chosen(None, answer)

    @property
    def text(self) -> str:
        """What stands in the input line."""
        return self._session.default_buffer.text

    def _shown(self) -> StyleAndTextTuples:
        width = max(len(option.text) for option in self._options)
        rows: StyleAndTextTuples = []
        for at, option in enumerate(self._options):
            here = at == self._at
            rows.append(("class:chosen" if here else "", f"{'>' if here else ' '} {option.text:{width}}"))
            rows.append(("class:hint", f"  {option.label}\n"))
        rows.append(("class:hint", f"Up, Down and Enter choose. Text is a message: {self._entered}\n"))
        return [*rows, ("class:prompt", "> ")]

    def _choices(self) -> KeyBindings:
        keys = KeyBindings()
        empty = Condition(lambda: not self._session.default_buffer.text)

        def move(by: int) -> None:
            count = len(self._options)
            self._at = (0 if by > 0 else count - 1) if self._at is None else (self._at + by) % count

        @keys.add("up", filter=empty)
        def _(_: KeyPressEvent) -> None:
            move(-1)

        @keys.add("down", filter=empty)
        def _(_: KeyPressEvent) -> None:
            move(1)

        @keys.add("enter", filter=empty)
        def _(event: KeyPressEvent) -> None:
            if self._at is not None:
                event.app.exit(result=Chosen(self._options[self._at].name))

        for option in self._options:
            if option.key:
                keys.add(option.key)(_choosing(option.name))
        return keys


def _choosing(name: str) -> Callable[[KeyPressEvent], None]:
    def choose(event: KeyPressEvent) -> None:
        event.app.exit(result=Chosen(name, event.current_buffer.text))

    return choose


def _keys() -> KeyBindings:
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
