"""Which model a name means. The library that talks to providers is imported when a talk with one begins, not before.

demo                    built in, offline
anthropic:NAME          and every other provider:NAME that Pydantic AI knows
NAME with a base_url    a server that speaks OpenAI's chat completions, such as a local one
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol, runtime_checkable

from recollect.agent.events import Event
from recollect.agent.tools import Tool
from recollect.errors import ModelNotConfigured
from recollect.model.message import Draft, Message

DEMO = "demo"
WINDOW = 128_000
"""Tokens that a model is taken to read where neither the caller nor the library knows."""

Spoken = Sequence[Draft | Message]


@runtime_checkable
class Model(Protocol):
    """What answers: it is given what was said, and yields the events of its answer, tool calls included."""

    @property
    def name(self) -> str:
        """What it is called: `demo`, `anthropic:...`."""
        ...

    @property
    def window(self) -> int:
        """How many tokens it reads."""
        ...

    def run(
        self, spoken: Spoken, *, instructions: str, tools: Sequence[Tool], toolsets: Sequence[Any] = ()
    ) -> AsyncGenerator[Event, None]:
        """Answer what was said last. A provider's failure is a ModelError."""
        ...

    async def write(self, task: str, spoken: Spoken) -> str:
        """Do a small task on a conversation beside it, such as a title or a summary: `title` or `summary`."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


def provider(model: Any) -> str | None:
    """Name the provider of a model: empty for a name without one, None for the demo and for an object."""
    return None if not isinstance(model, str) or model in ("", DEMO) else model.rpartition(":")[0]


def make(
    model: Any = DEMO, *, base_url: str | None = None, api_key: str | None = None, window: int | None = None
) -> Model:
    """Give the model that is meant: a name, a model of ours, or a model object of Pydantic AI."""
    if isinstance(model, Model):
        return model
    if model in (None, "", DEMO):
        from recollect.agent.demo import DemoModel  # noqa: PLC0415  what is not used is not imported

        return DemoModel(window=window)
    try:
        from recollect.agent.provider import ProviderModel  # noqa: PLC0415  it costs a second and more
    except ImportError as error:
        raise ModelNotConfigured(
            f"To talk to {model!r}, install Recollect with its chat extra: pip install 'recollect[chat]'. The model "
            f"'demo' needs nothing. (Missing: {error.name})",
            model=str(model),
        ) from error
    return ProviderModel(model, base_url=base_url, api_key=api_key, window=window)


def talkable(model: str | None) -> str | None:
    """Give the model that a session has, if it is one that can be talked to; other programs write other names there."""
    return model if model is not None and (model == DEMO or ":" in model) else None
