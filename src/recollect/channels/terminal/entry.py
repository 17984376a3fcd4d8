"""The input line: one line or several, what was said before with the arrow keys, completion of commands and names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style

from recollect.agent.commands import COMMANDS
from recollect.channels.terminal.safe import line

_STYLE = Style.from_dict({"prompt": "bold ansicyan", "bottom-toolbar": "noreverse fg:ansibrightblack"})
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
        self._session: PromptSession[str] = PromptSession(
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
        if self._session.app.is_running:
            await run_in_terminal(draw)
        else:
            draw()

    async def read(self, begin: str = "") -> str:
        """Read one input. Ctrl-D on an empty line is an EOFError, Ctrl-C a KeyboardInterrupt."""
        return await self._session.prompt_async([("class:prompt", "> ")], default=begin)


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
