"""The description of the API: OpenAPI 3.1, made from the handlers and their structs. No page shows it."""

from __future__ import annotations

import json
from typing import Any

from litestar.connection import Request
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import OpenAPIRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from recollect import __version__
from recollect.server.problem import TYPE

_DESCRIPTION = (
    "Everything that Recollect's store and page do, as JSON. Ids of sessions are percent-encoded whole. Lists go on "
    "with the `next` of a page. An error is problem+json, with a `code` that stays."
)
_ETAG = {"ETag": {"description": "The session's revision.", "schema": {"type": "string"}}}
_PROBLEM: dict[str, Any] = {
    "description": "What went wrong: a code that stays, and a sentence that says what to do.",
    "content": {TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Problem",
    "required": ["status", "code", "title", "detail"],
    "properties": {
        "status": {"type": "integer"},
        "code": {"type": "string", "examples": ["session-not-found"]},
        "title": {"type": "string"},
        "detail": {"type": "string"},
        "type": {"type": "string"},
        "fields": {"type": "object", "description": "What the error is about, such as `session`."},
    },
}
_STREAMS = ("follow_session", "follow_changes")
_BYTES = ("export_sessions", "export_session", "get_file")
_RUNS = ("say", "edit_message", "regenerate", "retry", "carry_on")
_OTHER = dict.fromkeys(("create_session", "begin_turn", "append_messages", "save_turn", "add_to_turn"), "200")
"""What answers with another status where the same was done before, under the same key."""

_NOT_MODIFIED = ("get_session", "list_messages", "get_history")
_LAST_ID: dict[str, Any] = {
    "name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "string"},
    "description": "The id of the last event that the client has.",
}  # fmt: skip


class Document(OpenAPIRenderPlugin):
    """Gives the description as it is committed in docs/openapi.json."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:  # noqa: ARG002
        """Write it."""
        return json.dumps(finished(openapi_schema)).encode()


def config() -> OpenAPIConfig:
    """Say what the description begins with, and that it is the only thing that is served."""
    return OpenAPIConfig(
        title="Recollect",
        version=__version__,
        description=_DESCRIPTION,
        path="/api/v1/openapi.json",  # under /api/v1 the framework would answer what is not there
        render_plugins=[Document(path="/", media_type="application/json")],  # pyright: ignore[reportArgumentType]
        components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
        security=[{"token": []}],
        use_handler_docstrings=True,
    )


def finished(document: dict[str, Any]) -> dict[str, Any]:
    """Bring a description up to what the handlers do: problems, streams, files, and answers without a body."""
    made: dict[str, Any] = json.loads(json.dumps(document))
    made["paths"] = {path: item for path, item in made["paths"].items() if path.startswith("/api/v1/")}
    for item in made["paths"].values():
        for method in item.values():
            _finish(method)
    schemas = made["components"]["schemas"]
    schemas["Problem"] = _PROBLEM_SCHEMA
    made["components"]["responses"] = {"Problem": _PROBLEM}
    return made


def _finish(method: dict[str, Any]) -> None:
    name: str = method["operationId"]
    method["summary"] = method["description"].partition(". ")[0].partition("\n")[0].rstrip(".")
    answers: dict[str, Any] = {status: answer for status, answer in method["responses"].items() if status != "400"}
    first = next(iter(answers.values()))
    if name in _STREAMS:
        first["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
        method.setdefault("parameters", []).append(_LAST_ID)
    elif name in _BYTES:
        first["content"] = {"*/*": {"schema": {"type": "string", "format": "binary"}}}
    elif name in _RUNS:
        first["content"]["text/event-stream"] = {"schema": {"type": "string"}}
        answers["200"] = {
            "description": "The events of the turn, to its end.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    if name == "import_sessions":
        method["requestBody"] = {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    if name in _OTHER:
        answers[_OTHER[name]] = {**first, "description": "The same was done before, under the same key."}
    if name in _NOT_MODIFIED:
        first["headers"] = _ETAG
        answers["304"] = {"description": "Nothing changed since.", "headers": _ETAG}
    answers["default"] = {"$ref": "#/components/responses/Problem"}
    method["responses"] = answers
    if name == "health":
        method["security"] = []
