"""Models of providers, through Pydantic AI. Importing this module takes a second or more."""

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

os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")  # it would be printed into the conversation

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
from recollect.agent.models import DEFAULT_WINDOW, ModelInput
from recollect.agent.titles import message_text
from recollect.agent.tools import Tool
from recollect.errors import ModelError, ModelNotConfigured, RecollectError
from recollect.model.humanize import clause
from recollect.model.message import Draft, ToolResultPart

_TASKS = {
    "title": "Write a title of at most six words for this conversation, in its language. Answer with the title alone.",
    "summary": (
        "Summarize this conversation for yourself, so that you can continue it later without reading it again: the "
        "questions, the findings and decisions, names, numbers and file names, and what is still open. Answer with the "
        "summary alone."
    ),
}
_TASK_CHARACTERS = 200_000  # characters of a conversation in a title or summary prompt: the newest ones, to fit windows
_MAX_REASON = 400  # characters of an error of a provider: it is shown on one line, with advice after it
_OLLAMA = "http://localhost:11434/v1"
_KEY = re.compile(r"Set the `(\w*(?:KEY|TOKEN))` environment variable")
_REPORTS_FINISH_REASON = tuple(f"pydantic_ai.models.{name}" for name in ("openai", "anthropic", "ollama"))
_INCLUDED_PROVIDERS = ("anthropic", "openai", "openai-chat", "openai-responses", "ollama")
"""Providers whose libraries the extra `chat` installs."""


class ProviderModel:
    """A provider's model by its name, or a model object of Pydantic AI."""

    def __init__(
        self, model: Any, *, base_url: str | None = None, api_key: str | None = None, window: int | None = None
    ) -> None:
        self._model = model if isinstance(model, LibraryModel) else _build_model(str(model), base_url, api_key)
        self.name = model if isinstance(model, str) else self._model.model_id
        self.window = window or self._model.context_window or DEFAULT_WINDOW
        self._runner = Runner(self._model, output_type=str, retries=2)
        self._is_open = False

    async def run(
        self, messages: ModelInput, *, instructions: str, tools: Sequence[Tool], toolsets: Sequence[Any] = ()
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of the answer to the last message, using Pydantic AI's loop."""
        from pydantic_ai.toolsets import FunctionToolset  # noqa: PLC0415  needed only when a model runs

        await self._enter()
        history = pydantic_messages.to_model_messages(messages)
        all_toolsets = [FunctionToolset([_report_exceptions(tool) for tool in tools]), *toolsets]
        try:
            async with self._runner.iter(
                message_history=history, instructions=instructions, toolsets=all_toolsets
            ) as run:
                async for node in run:
                    if Runner.is_model_request_node(node):
                        async with contextlib.aclosing(_convert_events(node.stream(run.ctx), _delta_event)) as deltas:
                            async for delta in deltas:
                                yield delta
                    elif Runner.is_call_tools_node(node):
                        draft = pydantic_messages.read_response(node.model_response)
                        if not self._is_finished(node.model_response):
                            yield Responded(message=_mark_unfinished(draft))
                            return  # tool calls that may be incomplete are not run
                        yield Responded(message=draft)
                        step = functools.partial(_tool_event, started={})
                        async with contextlib.aclosing(_convert_events(node.stream(run.ctx), step)) as steps:
                            async for event in steps:
                                yield event
        except RecollectError:
            raise
        except Exception as error:
            raise self._to_model_error(error) from error

    async def write(self, task: str, messages: ModelInput) -> str:
        """Return a title or a summary of the conversation, written by the model in a request of its own."""
        lines = [f"{message.role}: {text}" for message in messages if (text := message_text(message).strip())]
        prompt = _task_prompt(task, lines)
        await self._enter()
        try:
            response = await model_request(self._model, [ModelRequest.user_text_prompt(prompt)])
        except Exception as error:
            raise self._to_model_error(error) from error
        return "".join(part.content for part in response.parts if isinstance(part, TextPart)).strip()

    async def _enter(self) -> None:
        if not self._is_open:
            self._is_open = True
            await self._model.__aenter__()

    async def close(self) -> None:
        """Close the connections to the provider."""
        if self._is_open:
            self._is_open = False
            await self._model.__aexit__(None, None, None)

    def _is_finished(self, response: Any) -> bool:
        """Return whether the provider sent a finish reason.

        The library fills in "stop" for chat completions without one, so the provider's own details count. Providers
        that do not always send one are treated as finished.
        """
        if not type(self._model).__module__.startswith(_REPORTS_FINISH_REASON):
            return True
        details = response.provider_details or {}
        return response.finish_reason not in (None, "stop") or any("finish_reason" in name for name in details)

    def _to_model_error(self, error: Exception) -> ModelError:
        reason = _reason(error)
        address = _address(self._model) if isinstance(error, ModelConnectionError) else None
        return ModelError(model=self.name, reason=f"{reason} (tried {address})" if address else reason)


async def _convert_events(stream: Any, convert: Callable[[Any], Event | None]) -> AsyncGenerator[Event, None]:
    """Yield the library's events as Recollect events; some have no counterpart."""
    async with stream as events:
        async for event in events:
            if (result := convert(event)) is not None:
                yield result


def _mark_unfinished(draft: Draft) -> Draft:
    """Mark an answer whose stream ended early; the library may have filled in a finish reason."""
    fields: dict[str, Any] = (draft.native or {}).get("fields", {})
    fields = {name: value for name, value in fields.items() if name != "finish_reason"}
    return msgspec.structs.replace(draft, state="interrupted", native={"fields": fields})


def _report_exceptions(tool: Tool) -> Tool:
    """Wrap a tool so that its exception becomes a failed result; the library would end the run."""
    if not inspect.iscoroutinefunction(tool):
        tool = functools.wraps(tool)(functools.partial(asyncio.to_thread, tool))

    @functools.wraps(tool)
    async def call(*args: Any, **arguments: Any) -> Any:
        try:
            return await tool(*args, **arguments)
        except (ModelRetry, ToolFailed):
            raise
        except Exception as error:
            raise ToolFailed(f"{type(error).__name__}: {error}") from error

    return call


def _address(model: LibraryModel) -> str | None:
    """Return the address of a model's server without credentials and query."""
    url = model.base_url
    if not url:
        return None
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


def _reason(error: Exception) -> str:
    if isinstance(error, ModelHTTPError):
        return f"the provider answered {error.status_code}: {clause(str(error.body or error), _MAX_REASON)}"
    if isinstance(error, AgentRunError | UserError):
        return clause(str(error), _MAX_REASON)
    return clause(f"{type(error).__name__}: {error}", _MAX_REASON)


def _delta_event(event: Any) -> Event | None:
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


def _tool_event(event: Any, started: dict[str, float]) -> Event | None:
    if isinstance(event, FunctionToolCallEvent):
        call = event.part
        started[call.tool_call_id] = time.monotonic()
        return ToolStarted(call_id=call.tool_call_id, tool=call.tool_name, arguments=call.args)
    if isinstance(event, FunctionToolResultEvent):
        part: Any = event.part
        start = started.get(part.tool_call_id, time.monotonic())
        draft = pydantic_messages.read_result(part, int((time.monotonic() - start) * 1000))
        return _tool_finished_event(draft)
    return None


def _tool_finished_event(draft: Draft) -> ToolFinished:
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


def _build_model(name: str, base_url: str | None, api_key: str | None) -> LibraryModel:
    try:
        if base_url is not None:
            return _model_at(name, base_url, api_key)
        if name.startswith("ollama:") and not os.environ.get("OLLAMA_BASE_URL"):
            return _model_at(name, _OLLAMA, api_key)
        if api_key is not None:
            return infer_model(name, lambda provider: _build_provider(provider, api_key=api_key))
        return infer_model(name)
    except (UserError, ValueError, ImportError) as error:
        raise ModelNotConfigured(model=repr(name), reason=_missing_setup(name, error)) from error


def _missing_setup(name: str, error: Exception) -> str:
    """Return the reason why a model cannot be built, with the next step: Pydantic AI's errors address programmers."""
    if ":" not in name:
        return "it has no provider. Use provider:name, for example anthropic:NAME or ollama:NAME, or set a base URL"
    if (key := _KEY.match(str(error))) is not None:
        return f"it needs a key. Set {key[1]} in the environment, or model.api_key in the configuration"
    if isinstance(error, ImportError) and name.partition(":")[0] in _INCLUDED_PROVIDERS:
        return "its library is not installed. Install it with: pip install 'recollect[chat]'"
    if str(error).startswith("Unknown model"):
        provider = name.partition(":")[0]
        return f"{provider!r} is not a known provider. Use for example anthropic:NAME, openai:NAME or ollama:NAME"
    return clause(str(error), _MAX_REASON)


def _build_provider(name: str, **options: Any) -> Any:
    from pydantic_ai.providers import infer_provider_class  # noqa: PLC0415  needed only with a configured key or URL

    return infer_provider_class(name)(**options)


def _model_at(name: str, base_url: str, api_key: str | None) -> LibraryModel:
    """Return a model on a server at `base_url`: Anthropic's protocol for `anthropic:`, else OpenAI's."""
    provider, _, model = name.rpartition(":")
    if provider == "anthropic":
        return infer_model(
            name, lambda _: _build_provider("anthropic", base_url=base_url, api_key=api_key or _env_key("ANTHROPIC"))
        )
    if provider == "ollama":
        key = api_key or os.environ.get("OLLAMA_API_KEY") or "not-needed"
        return infer_model(name, lambda _: _build_provider("ollama", base_url=base_url, api_key=key))
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel  # noqa: PLC0415  only this provider needs it
    from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415

    server = OpenAIProvider(base_url=base_url, api_key=api_key or _env_key("OPENAI"))
    kind = OpenAIResponsesModel if provider == "openai-responses" else OpenAIChatModel
    return kind(model or name, provider=server)


def _env_key(provider: str) -> str:
    return os.environ.get(f"{provider}_API_KEY") or "not-needed"


def _task_prompt(task: str, lines: Sequence[str]) -> str:
    transcript = "\n\n".join(lines)[-_TASK_CHARACTERS:]
    return f"{_TASKS[task]}\n\n<conversation>\n{transcript}\n</conversation>"
