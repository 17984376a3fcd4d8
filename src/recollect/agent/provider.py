"""Models of providers, through Pydantic AI. Importing this file costs a second or more: only a talk does."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import re
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")  # it would be printed into the talk

import msgspec
from pydantic_ai import Agent as Runner
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import (
    AgentRunError,
    ModelConnectionError,
    ModelHTTPError,
    ModelRetry,
    ToolFailed,
    UserError,
)
from pydantic_ai.messages import (
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelRequest,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.models import Model as LibraryModel
from pydantic_ai.models import infer_model

from recollect.agent import pydantic_messages
from recollect.agent.events import Event, ReasoningDelta, Responded, TextDelta, ToolFinished, ToolStarted
from recollect.agent.models import WINDOW, Spoken
from recollect.agent.titles import said
from recollect.agent.tools import Tool
from recollect.errors import ModelError, ModelNotConfigured, RecollectError
from recollect.model.message import Draft
from recollect.model.part import ToolResultPart

_TASKS = {
    "title": "Write a title of at most six words for this conversation, in its language. Answer with the title alone.",
    "summary": (
        "Sum up this conversation for yourself, so that you can go on with it later without reading it again: what was "
        "asked, what was found and decided, names, numbers and file names, and what is still open. Answer with the "
        "summary alone."
    ),
}
_TASK_CHARACTERS = 200_000
_OLLAMA = "http://localhost:11434/v1"
_KEY = re.compile(r"Set the `(\w*(?:KEY|TOKEN))` environment variable")
_SAYS_WHY = tuple(f"pydantic_ai.models.{name}" for name in ("openai", "anthropic", "ollama"))
_BROUGHT = ("anthropic", "openai", "openai-chat", "openai-responses", "ollama")
"""Providers whose libraries the extra `chat` brings."""


class ProviderModel:
    """A provider's model by its name, or a model object of Pydantic AI."""

    def __init__(
        self, model: Any, *, base_url: str | None = None, api_key: str | None = None, window: int | None = None
    ) -> None:
        self._model = model if isinstance(model, LibraryModel) else _made(str(model), base_url, api_key)
        self.name = model if isinstance(model, str) else self._model.model_id
        self.window = window or self._model.context_window or WINDOW
        self._runner = Runner(self._model, output_type=str, retries=2)
        self._entered = False

    async def run(
        self, spoken: Spoken, *, instructions: str, tools: Sequence[Tool], toolsets: Sequence[Any] = ()
    ) -> AsyncGenerator[Event, None]:
        """Answer what was said last, with Pydantic AI's loop."""
        from pydantic_ai.toolsets import FunctionToolset  # noqa: PLC0415  most of its cost is paid above

        await self._enter()
        history = pydantic_messages.write(spoken)
        given = [FunctionToolset([_careful(tool) for tool in tools]), *toolsets]
        try:
            async with self._runner.iter(message_history=history, instructions=instructions, toolsets=given) as run:
                async for node in run:
                    if Runner.is_model_request_node(node):
                        async with contextlib.aclosing(_converted(node.stream(run.ctx), _delta)) as deltas:
                            async for delta in deltas:
                                yield delta
                    elif Runner.is_call_tools_node(node):
                        draft = pydantic_messages.read_response(node.model_response)
                        if not self._is_finished(node.model_response):
                            yield Responded(message=_unfinished(draft))
                            return  # calls that may be cut off are not run
                        yield Responded(message=draft)
                        step = functools.partial(_step, started={})
                        async with contextlib.aclosing(_converted(node.stream(run.ctx), step)) as steps:
                            async for event in steps:
                                yield event
        except RecollectError:
            raise
        except Exception as error:
            raise self._failed(error) from error

    async def write(self, task: str, spoken: Spoken) -> str:
        """Have the model do a small task on the conversation, beside it."""
        lines = [f"{message.role}: {text}" for message in spoken if (text := said(message).strip())]
        asked = _asked(task, lines)
        await self._enter()
        try:
            response = await model_request(self._model, [ModelRequest.user_text_prompt(asked)])
        except Exception as error:
            raise self._failed(error) from error
        return "".join(part.content for part in response.parts if isinstance(part, TextPart)).strip()

    async def _enter(self) -> None:
        if not self._entered:
            self._entered = True
            await self._model.__aenter__()

    async def close(self) -> None:
        """Close the connections to the provider."""
        if self._entered:
            self._entered = False
            await self._model.__aexit__(None, None, None)

    def _is_finished(self, response: Any) -> bool:
        """Return whether the provider said why the answer ended.

        The library fills in "stop" for chat completions that do not say it, so what the provider said counts. Other
        providers are not judged: not all of them say it.
        """
        if not type(self._model).__module__.startswith(_SAYS_WHY):
            return True
        details = response.provider_details or {}
        return response.finish_reason not in (None, "stop") or any("finish_reason" in name for name in details)

    def _failed(self, error: Exception) -> ModelError:
        reason = _reason(error)
        address = _address(self._model) if isinstance(error, ModelConnectionError) else None
        return ModelError(model=self.name, reason=f"{reason} ({address} was tried)" if address else reason)


async def _converted(stream: Any, convert: Callable[[Any], Event | None]) -> AsyncGenerator[Event, None]:
    """Yield the library's events as ours; some have none."""
    async with stream as events:
        async for event in events:
            if (converted := convert(event)) is not None:
                yield converted


def _unfinished(draft: Draft) -> Draft:
    """Mark an answer whose stream ended early; the library may have filled in a finish reason."""
    native = {name: value for name, value in (draft.native or {}).items() if name != "finish_reason"}
    return msgspec.structs.replace(draft, state="interrupted", native=native)


def _careful(tool: Tool) -> Tool:
    """Have a tool's exception told to the model as a failure; by itself it would end the run."""
    if not inspect.iscoroutinefunction(tool):
        tool = functools.wraps(tool)(functools.partial(asyncio.to_thread, tool))

    @functools.wraps(tool)
    async def called(*args: Any, **arguments: Any) -> Any:
        try:
            return await tool(*args, **arguments)
        except (ModelRetry, ToolFailed):
            raise
        except Exception as error:
            raise ToolFailed(f"{type(error).__name__}: {error}") from error

    return called


def _address(model: LibraryModel) -> str | None:
    """Say where a model is asked, without a name and a password that the URL may have."""
    url = model.base_url
    if not url:
        return None
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


def _reason(error: Exception) -> str:
    if isinstance(error, ModelHTTPError):
        return f"the provider answered {error.status_code}: {_short(str(error.body or error))}"
    if isinstance(error, AgentRunError | UserError):
        return _short(str(error))
    return _short(f"{type(error).__name__}: {error}")


def _short(text: str, longest: int = 400) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= longest else line[:longest] + "\u2026"


def _delta(event: Any) -> Event | None:
    match event:
        case PartStartEvent(part=TextPart(content=text)) if text:
            return TextDelta(text=text)
        case PartStartEvent(part=ThinkingPart(content=text)) if text:
            return ReasoningDelta(text=text)
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
            return TextDelta(text=text)
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)) if text:
            return ReasoningDelta(text=text)
        case _:
            return None


def _step(event: Any, started: dict[str, float]) -> Event | None:
    if isinstance(event, FunctionToolCallEvent):
        call = event.part
        started[call.tool_call_id] = time.monotonic()
        return ToolStarted(call_id=call.tool_call_id, tool=call.tool_name, arguments=call.args)
    if isinstance(event, FunctionToolResultEvent):
        part: Any = event.part
        since = started.get(part.tool_call_id, time.monotonic())
        draft = pydantic_messages.read_result(part, int((time.monotonic() - since) * 1000))
        return _finished(draft)
    return None


def _finished(draft: Draft) -> ToolFinished:
    result = draft.parts[0]
    assert isinstance(result, ToolResultPart)
    latency = (result.metadata or {}).get("latency_ms", 0)
    return ToolFinished(
        call_id=result.call_id,
        tool=result.tool or "",
        status=result.status,
        output=result.output,
        latency_ms=latency,
        message=draft,
    )


def _made(name: str, base_url: str | None, api_key: str | None) -> LibraryModel:
    try:
        if base_url is not None:
            return _at(name, base_url, api_key)
        if name.startswith("ollama:") and not os.environ.get("OLLAMA_BASE_URL"):
            return _at(name, _OLLAMA, api_key)
        if api_key is not None:
            return infer_model(name, lambda provider: _provider(provider, api_key=api_key))
        return infer_model(name)
    except (UserError, ValueError, ImportError) as error:
        raise ModelNotConfigured(model=repr(name), reason=_lacking(name, error)) from error


def _lacking(name: str, error: Exception) -> str:
    """Say what a model needs, in the words of who talks: the library's own speak to who writes a program with it."""
    if ":" not in name:
        return "write it as provider:name, such as anthropic:... or ollama:..., or set a base URL"
    if (key := _KEY.match(str(error))) is not None:
        return f"it needs a key. Set {key[1]} in the environment, or model.api_key in the configuration"
    if isinstance(error, ImportError) and name.partition(":")[0] in _BROUGHT:
        return "its library is not installed. Install it with: pip install 'recollect[chat]'"
    if str(error).startswith("Unknown model"):
        provider = name.partition(":")[0]
        return f"no provider is called {provider!r}. Some that there are: anthropic, openai, ollama"
    return _short(str(error))


def _provider(name: str, **options: Any) -> Any:
    from pydantic_ai.providers import infer_provider_class  # noqa: PLC0415  needed with a key of one's own only

    return infer_provider_class(name)(**options)


def _at(name: str, base_url: str, api_key: str | None) -> LibraryModel:
    """Talk to a server of one's own: Anthropic's protocol where the name says so, else chat completions."""
    provider, _, model = name.rpartition(":")
    if provider == "anthropic":
        return infer_model(
            name, lambda _: _provider("anthropic", base_url=base_url, api_key=api_key or _key("ANTHROPIC"))
        )
    if provider == "ollama":
        key = api_key or os.environ.get("OLLAMA_API_KEY") or "not-needed"
        return infer_model(name, lambda _: _provider("ollama", base_url=base_url, api_key=key))
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel  # noqa: PLC0415  one provider of many
    from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415

    at = OpenAIProvider(base_url=base_url, api_key=api_key or _key("OPENAI"))
    kind = OpenAIResponsesModel if provider == "openai-responses" else OpenAIChatModel
    return kind(model or name, provider=at)


def _key(provider: str) -> str:
    return os.environ.get(f"{provider}_API_KEY") or "not-needed"


def _asked(task: str, lines: Sequence[str]) -> str:
    told = "\n\n".join(lines)[-_TASK_CHARACTERS:]
    return f"{_TASKS[task]}\n\n<conversation>\n{told}\n</conversation>"
