"""Model names and the Model protocol. Pydantic AI is imported when a conversation with a provider's model begins.

demo                    built in, offline
anthropic:NAME          and every other provider:NAME that Pydantic AI knows
NAME with a base_url    a server that implements OpenAI's chat completions, such as a local one
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol, runtime_checkable

from recollect.agent.events import Event
from recollect.agent.tools import Tool
from recollect.errors import ModelNotConfigured
from recollect.model.message import Draft, Message

DEMO = "demo"
DEFAULT_WINDOW = 128_000
"""Context window in tokens of a model for which neither the caller nor Pydantic AI states one."""

ModelInput = Sequence[Draft | Message]


@runtime_checkable
class Model(Protocol):
    """A model: it receives messages and yields the events of its answer, including tool calls."""

    @property
    def name(self) -> str:
        """The name, such as `demo` or `anthropic:...`."""
        ...

    @property
    def window(self) -> int:
        """The number of tokens that it accepts in one request."""
        ...

    def run(
        self, messages: ModelInput, *, instructions: str, tools: Sequence[Tool], toolsets: Sequence[Any] = ()
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of the answer to the last message. Raises ModelError if the provider fails."""
        ...

    async def write(self, task: str, messages: ModelInput) -> str:
        """Return a text about a conversation, outside of it. `task` is `title` or `summary`."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def provider_of(model: Any) -> str | None:
    """Return the provider of a model name: "" for a name without one, None for the demo model and for objects."""
    return None if not isinstance(model, str) or model in ("", DEMO) else model.rpartition(":")[0]


def make_model(
    model: Any = DEMO, *, base_url: str | None = None, api_key: str | None = None, window: int | None = None
) -> Model:
    """Return a Model for a name, a Model, or a model object of Pydantic AI. Raises ModelNotConfigured."""
    if isinstance(model, Model):
        return model
    if model in (None, "", DEMO):
        from recollect.agent.demo import DemoModel  # noqa: PLC0415  imported on first use

        return DemoModel(window=window)
    try:
        from recollect.agent.provider import ProviderModel  # noqa: PLC0415  importing it takes a second or more
    except ImportError as error:
        raise ModelNotConfigured(
            f"The model {model!r} needs the chat extra: pip install 'recollect[chat]' (missing: {error.name}). "
            "The model 'demo' works without it.",
            model=str(model),
        ) from error
    return ProviderModel(model, base_url=base_url, api_key=api_key, window=window)


def callable_model(model: str | None) -> str | None:
    """Return the model of a session if it can be called, else None: other programs store other names there."""
    return model if model is not None and (model == DEMO or ":" in model) else None
