"""Random requests to every operation of the OpenAPI document, with a valid token: no server error and no hang."""

from __future__ import annotations

import json
import pathlib
from urllib.parse import quote

import hypothesis
import pytest
from hypothesis import strategies as st
from server_harness import wait_for

import recollect

DOCUMENT = json.loads((pathlib.Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
ALLOWED_ERRORS = (501, 503, 507)
METHODS = ("get", "post", "put", "patch", "delete")
OPERATIONS = [(path, method) for path, item in DOCUMENT["paths"].items() for method in METHODS if method in item]
SESSIONS = ["a", "b/c", "discord:dm:42", "\u00e9\U0001f600", "deleted"]

odd_text = st.sampled_from([
    "", " ", "\x00", "\ud800", "\U0001f600", "'", '"', "%", "a" * 3_000, "9" * 5_000, "1.1", "1.2", "-1", "null", "2025-01-01", "1e999", "..",
    "demo", "user", "a", "b/c", "tool", "pending", "recollect", "anthropic", "completed", "\u202e", "{}", "3d", "9" * 19, "1_1_1_1_1__1_1_",
])  # fmt: skip
text = odd_text | st.text(max_size=20)
number = (
    st.sampled_from([0, 1, 2, -1, 1 << 31, 1 << 32, 1 << 63, 1 << 64, 10**40, -(1 << 63), 0.5, 1e308]) | st.integers()
)
leaf = st.none() | st.booleans() | number | text
anything = st.recursive(
    leaf, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=8
)
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "x"])},
    optional={"content": anything, "parts": anything, "tool_calls": anything, "metadata": anything, "id": anything},
)


def resolve_schema(schema):
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for keyword in ("oneOf", "anyOf"):
        if keyword in schema:
            return resolve_schema(next(option for option in schema[keyword] if option.get("type") != "null"))
    return schema


def bodies(operation):
    """Return a strategy for bodies: most match the schema at the top level, some are any JSON."""
    content = operation.get("requestBody", {}).get("content", {})
    media_type = content.get("application/json")
    if media_type is None:
        return st.none() if not content else st.binary(max_size=200)
    properties = resolve_schema(media_type["schema"]).get("properties", {})
    fields = {
        name: message | st.lists(message, max_size=3) | anything if name in MESSAGE_FIELDS else values(schema)
        for name, schema in properties.items()
    }
    required = resolve_schema(media_type["schema"]).get("required", [])
    matching = st.fixed_dictionaries(
        {name: fields[name] for name in required},
        optional={name: strategy for name, strategy in fields.items() if name not in required},
    )
    return matching | matching | matching | anything


MESSAGE_FIELDS = ("messages", "message", "response", "said")


def values(schema):
    """Return a strategy for a field: mostly values of its type, some of any type."""
    schema = resolve_schema(schema)
    kinds = {"string": text, "integer": number, "boolean": st.booleans(), "array": st.lists(anything, max_size=3)}
    matching = st.sampled_from(schema["enum"]) if "enum" in schema else kinds.get(schema.get("type"), anything)
    return matching | matching | anything


def to_text(item):
    return item if isinstance(item, str) else json.dumps(item)


@st.composite
def requests(draw):
    """Draw a request to an operation: method, path, parameters, headers and body."""
    path, method = draw(st.sampled_from(OPERATIONS))
    operation, query, headers = DOCUMENT["paths"][path][method], {}, {}
    for parameter in operation.get("parameters", ()):
        name = parameter["name"]
        if parameter["in"] == "path":
            pool = (
                st.sampled_from(SESSIONS)
                if name == "session"
                else st.sampled_from(["1.1", "1.2", "1.3", "0", "1", "summary"])
            )
            value = to_text(draw(pool | pool | pool | text | number)) or "x"
            path = path.replace(f"{{{name}}}", quote(value.encode("utf-8", "replace"), safe=""))
        elif parameter["in"] == "query" and (parameter.get("required") or draw(st.booleans())):
            query[name] = to_text(draw(values(parameter.get("schema", {})))).encode("utf-8", "replace")
        elif parameter["in"] == "header" and draw(st.booleans()):
            headers[name] = draw(
                st.sampled_from(["k", "k2", '"1"', "*", "1.1:1:1", "-:0:0", "9" * 5_000, "\x7f", "a,b", ""])
            )
    return method, path, query, headers, draw(bodies(operation))


def send(api, request):
    method, path, query, headers, body = request
    if body is not None and not isinstance(body, bytes):
        body, headers = json.dumps(body).encode(), {**headers, "Content-Type": "application/json"}
    with api.stream(
        method.upper(), path.removeprefix("/api/v1"), params=query, headers=headers, content=body
    ) as answer:
        body_start = "" if "event-stream" in answer.headers.get("content-type", "") else answer.read()[:500]
    assert answer.status_code < 500 or answer.status_code in ALLOWED_ERRORS, (request, body_start)


def create_sessions(api):
    for name in SESSIONS:
        at = f"/sessions/{quote(name, safe='')}"
        api.put(at)
        messages = [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": "three"},
        ]
        api.post(f"{at}/messages", json={"messages": messages})
    api.delete("/sessions/deleted")


def fuzz(server, api, path, examples):
    create_sessions(api)
    counts = {}

    @hypothesis.settings(
        max_examples=examples, deadline=None, database=None, derandomize=examples < 1_000,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(requests())
    def run(request):
        send(api, request)
        counts[request[:1]] = counts.get(request[:1], 0) + 1

    run()
    wait_for(lambda: not api.get("/info").json().get("running"), "the end of the answers")
    assert api.get("/sessions").status_code == 200
    server.close()
    with recollect.open(path) as store:
        assert store.maintenance.check(deep=True).problems == ()
    print(f"{sum(counts.values())} requests to {len(OPERATIONS)} operations")


def test_random_requests_cause_no_server_error(server, api, tmp_path):
    fuzz(server, api, tmp_path / "r.db", 150)


@pytest.mark.long
def test_random_requests_cause_no_server_error_in_a_long_run(server, api, tmp_path):
    fuzz(server, api, tmp_path / "r.db", 20_000)
