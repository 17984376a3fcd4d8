"""Random requests to every operation of the description, with a token that is right: no error of the server, no hang."""

from __future__ import annotations

import json
import pathlib
from urllib.parse import quote

import hypothesis
import pytest
from hypothesis import strategies as st
from running import wait_for

import recollect

DOCUMENT = json.loads((pathlib.Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
FORESEEN = (501, 503, 507)
METHODS = ("get", "post", "put", "patch", "delete")
OPERATIONS = [(path, method) for path, item in DOCUMENT["paths"].items() for method in METHODS if method in item]
SESSIONS = ["a", "b/c", "discord:dm:42", "\u00e9\U0001f600", "gone"]

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


def resolved(schema):
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return resolved(next(one for one in schema[several] if one.get("type") != "null"))
    return schema


def body_of(operation):
    """Give bodies: those that begin to fit the description, and any JSON at all."""
    content = operation.get("requestBody", {}).get("content", {})
    kind = content.get("application/json")
    if kind is None:
        return st.none() if not content else st.binary(max_size=200)
    known = resolved(kind["schema"]).get("properties", {})
    fields = {
        name: message | st.lists(message, max_size=3) | anything if name in TALK else value(about)
        for name, about in known.items()
    }
    needed = resolved(kind["schema"]).get("required", [])
    fitting = st.fixed_dictionaries(
        {name: fields[name] for name in needed},
        optional={name: made for name, made in fields.items() if name not in needed},
    )
    return fitting | fitting | fitting | anything


TALK = ("messages", "message", "response", "said")


def value(about):
    """Give values for a field: mostly of its type, some of any."""
    about = resolved(about)
    kinds = {"string": text, "integer": number, "boolean": st.booleans(), "array": st.lists(anything, max_size=3)}
    fitting = st.sampled_from(about["enum"]) if "enum" in about else kinds.get(about.get("type"), anything)
    return fitting | fitting | anything


def plain(item):
    return item if isinstance(item, str) else json.dumps(item)


@st.composite
def requests(draw):
    """Give a request to some operation: method, address, parameters, headers, body."""
    path, method = draw(st.sampled_from(OPERATIONS))
    operation, query, headers = DOCUMENT["paths"][path][method], {}, {}
    for about in operation.get("parameters", ()):
        name = about["name"]
        if about["in"] == "path":
            pool = (
                st.sampled_from(SESSIONS)
                if name == "session"
                else st.sampled_from(["1.1", "1.2", "1.3", "0", "1", "summary"])
            )
            made = plain(draw(pool | pool | pool | text | number)) or "x"
            path = path.replace(f"{{{name}}}", quote(made.encode("utf-8", "replace"), safe=""))
        elif about["in"] == "query" and (about.get("required") or draw(st.booleans())):
            query[name] = plain(draw(value(about.get("schema", {})))).encode("utf-8", "replace")
        elif about["in"] == "header" and draw(st.booleans()):
            headers[name] = draw(
                st.sampled_from(["k", "k2", '"1"', "*", "1.1:1:1", "-:0:0", "9" * 5_000, "\x7f", "a,b", ""])
            )
    return method, path, query, headers, draw(body_of(operation))


def send(api, request):
    method, path, query, headers, body = request
    if body is not None and not isinstance(body, bytes):
        body, headers = json.dumps(body).encode(), {**headers, "Content-Type": "application/json"}
    with api.stream(
        method.upper(), path.removeprefix("/api/v1"), params=query, headers=headers, content=body
    ) as answer:
        told = "" if "event-stream" in answer.headers.get("content-type", "") else answer.read()[:500]
    assert answer.status_code < 500 or answer.status_code in FORESEEN, (request, told)


def furnish(api):
    for name in SESSIONS:
        at = f"/sessions/{quote(name, safe='')}"
        api.put(at)
        said = [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": "three"},
        ]
        api.post(f"{at}/messages", json={"messages": said})
    api.delete("/sessions/gone")


def fuzz(server, api, path, examples):
    furnish(api)
    told = {}

    @hypothesis.settings(
        max_examples=examples, deadline=None, database=None, derandomize=examples < 1_000,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(requests())
    def run(request):
        send(api, request)
        told[request[:1]] = told.get(request[:1], 0) + 1

    run()
    wait_for(lambda: not api.get("/info").json().get("running"), "the answers")
    assert api.get("/sessions").status_code == 200
    server.close()
    with recollect.open(path) as store:
        assert store.check(deep=True).problems == ()
    print(f"{sum(told.values())} requests to {len(OPERATIONS)} operations")


def test_random_requests_break_nothing(server, api, tmp_path):
    fuzz(server, api, tmp_path / "r.db", 150)


@pytest.mark.long
def test_random_requests_break_nothing_for_long(server, api, tmp_path):
    fuzz(server, api, tmp_path / "r.db", 20_000)
