"""The OpenAPI 3.1 document of the API, generated from the handlers and their structs."""

from __future__ import annotations

import json
import re
from typing import Any

from litestar.connection import Request
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import OpenAPIRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from recollect import __version__
from recollect.server.problems import PROBLEM_TYPE

_DESCRIPTION = (
    "The operations of Recollect's store and agent as JSON. Session ids in paths are percent-encoded, including "
    "slashes. Pass the `next` of a page as `after` to read the next page. Errors are problem+json with a stable `code`."
)
_ETAG = {"ETag": {"description": "The session's revision.", "schema": {"type": "string"}}}
_PROBLEM: dict[str, Any] = {
    "description": "An error: a stable code, and a sentence with the next step.",
    "content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
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
        "fields": {"type": "object", "description": "Values that the error refers to, such as `session`."},
    },
}
_SCHEMA_SUFFIX = "Schema"
_COMPONENT_NAMES = {
    "ApprovalDecision": "Answer", "ApprovalRequest": "Question", "CompleteTurn": "WholeTurn",
    "EmptyTrashResult": "Emptied", "EraseResult": "Erased", "LastSession": "Last", "ModelSelection": "Choice",
    "NewChatMessage": "Saying", "OpenTurn": "Begun", "PendingApproval": "Waiting", "RegenerateRequest": "Again",
    "SessionReference": "Named", "StopResult": "Stopped", "ToolResult": "Result",
}  # fmt: skip
"""Classes whose component has another name. Component names are part of the interface: generated clients use them."""
_SCHEMA_REFERENCE = re.compile(r'"#/components/schemas/(\w+)"')
_EVENT_STREAMS = ("follow_session", "follow_changes")
_BYTES = ("export_sessions", "export_session", "get_file")
_TURN_STARTS = ("say", "edit_message", "regenerate", "retry", "carry_on")
_REPEATED_STATUS = dict.fromkeys(("create_session", "begin_turn", "append_messages", "save_turn", "add_to_turn"), "200")
"""Operations whose status differs if an earlier request with the same key did the work."""

_NOT_MODIFIED = ("get_session", "list_messages", "get_history")
_LAST_ID: dict[str, Any] = {
    "name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "string"},
    "description": "The id of the last event that the client received.",
}  # fmt: skip


class OpenApiRenderer(OpenAPIRenderPlugin):
    """Serves the document that is committed as docs/openapi.json."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:  # noqa: ARG002
        """Return the finished document as JSON."""
        return json.dumps(finish_document(openapi_schema)).encode()


def openapi_config() -> OpenAPIConfig:
    """Return the framework's configuration: the document is served, no HTML page is."""
    return OpenAPIConfig(
        title="Recollect",
        version=__version__,
        description=_DESCRIPTION,
        path="/api/v1/openapi.json",  # with /api/v1 alone, the framework would answer unknown paths
        render_plugins=[OpenApiRenderer(path="/", media_type="application/json")],  # pyright: ignore[reportArgumentType]
        components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
        security=[{"token": []}],
        use_handler_docstrings=True,
    )


def finish_document(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with additions that the framework cannot derive: problems, streams, files, empty bodies."""
    finished: dict[str, Any] = json.loads(_SCHEMA_REFERENCE.sub(_component_reference, json.dumps(document)))
    finished["paths"] = {path: item for path, item in finished["paths"].items() if path.startswith("/api/v1/")}
    for item in finished["paths"].values():
        for method in item.values():
            _finish_operation(method)
    schemas: dict[str, Any] = {}
    for name, schema in finished["components"]["schemas"].items():
        schemas[_component_name(name)] = schema
        if schema.get("title") == name:
            schema["title"] = _component_name(name)
    schemas["Problem"] = _PROBLEM_SCHEMA
    finished["components"]["schemas"] = schemas
    finished["components"]["responses"] = {"Problem": _PROBLEM}
    return finished


def _component_name(class_name: str) -> str:
    """Return the name that a class has in the document."""
    return _COMPONENT_NAMES.get(class_name) or class_name.removesuffix(_SCHEMA_SUFFIX)


def _component_reference(match: re.Match[str]) -> str:
    return f'"#/components/schemas/{_component_name(match[1])}"'


def _finish_operation(method: dict[str, Any]) -> None:
    name: str = method["operationId"]
    method["summary"] = method["description"].partition(". ")[0].partition("\n")[0].rstrip(".")
    responses: dict[str, Any] = {
        status: response for status, response in method["responses"].items() if status != "400"
    }
    first = next(iter(responses.values()))
    if name in _EVENT_STREAMS:
        first["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
        method.setdefault("parameters", []).append(_LAST_ID)
    elif name in _BYTES:
        first["content"] = {"*/*": {"schema": {"type": "string", "format": "binary"}}}
    elif name in _TURN_STARTS:
        first["content"]["text/event-stream"] = {"schema": {"type": "string"}}
        responses["200"] = {
            "description": "The event stream of the turn.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    if name == "import_sessions":
        method["requestBody"] = {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    if name in _REPEATED_STATUS:
        responses[_REPEATED_STATUS[name]] = {**first, "description": "An earlier request with the same key did this."}
    if name in _NOT_MODIFIED:
        first["headers"] = _ETAG
        responses["304"] = {"description": "Not modified.", "headers": _ETAG}
    responses["default"] = {"$ref": "#/components/responses/Problem"}
    method["responses"] = responses
    if name == "health":
        method["security"] = []
