"""The description of the API is true: committed as it is served, complete, and what the server answers conforms to it."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from recollect.model import branch, compaction, hit, message, repair, session, snapshot, tool_call, turn
from recollect.server.api import shapes

ROOT = pathlib.Path(__file__).parents[2]
STREAMS = ("follow_session", "follow_changes")


def test_the_committed_description_is_the_one_that_is_served(api):
    committed = json.loads((ROOT / "docs" / "openapi.json").read_text())
    assert api.get("/openapi.json").json() == committed, "Write it anew: python tools/openapi.py"
    assert committed["openapi"].startswith("3.1")


def test_every_operation_is_described_in_words():
    committed = json.loads((ROOT / "docs" / "openapi.json").read_text())
    page = (ROOT / "docs" / "http-api.md").read_text()
    for path, methods in committed["paths"].items():
        for method, told in methods.items():
            assert f"`{method.upper()} {path.removeprefix('/api/v1')}`" in page, (method, path)
            assert told["description"]
            assert "default" in told["responses"]


def test_no_page_shows_the_description(api):
    assert api.get("/").json()["code"] == "not-found"
    for path in ("/swagger", "/redoc", "/elements", "/rapidoc", "/scalar", "/docs"):
        assert api.get(path).status_code == 404


@pytest.mark.parametrize(
    ("shape", "value", "more"),
    [
        (shapes.Session, session.Session, {"running"}),
        (shapes.Message, message.Message, {"id"}),
        (shapes.Turn, turn.Turn, {"id"}),
        (shapes.ToolCall, tool_call.ToolCall, set()),
        (shapes.Branch, branch.Branch, set()),
        (shapes.Compaction, compaction.Compaction, set()),
        (shapes.Snapshot, snapshot.Snapshot, set()),
        (shapes.Hit, hit.Hit, {"snippet"}),
        (shapes.Repair, repair.Repair, set()),
    ],
)
def test_a_shape_has_the_fields_of_its_value(shape, value, more):
    assert set(shape.__struct_fields__) == set(value.__struct_fields__) | more


def _tried(server, tmp_path, *options):
    """Send what the description allows, and what it does not, and compare the answers with it."""
    command = [
        str(pathlib.Path(sys.executable).parent / "schemathesis"), "run", f"{server.url}/api/v1/openapi.json",
        "-H", f"Authorization: Bearer {next(iter(server.tokens))}", "--no-color", "--warnings", "off",
        "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        "--generation-database", "none", "--no-shrink", "--request-timeout", "30",
        *(part for name in STREAMS for part in ("--exclude-operation-id", name)),
        *options,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout[-12_000:] + done.stderr[-2_000:]
    return done.stdout


def _some(api):
    for name in ("a", "b/c"):
        path = f"/sessions/{name.replace('/', '%2F')}"
        api.put(path, json={"title": "Some"})
        talk = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
        api.post(f"{path}/messages", json={"messages": talk})


def test_answers_conform_to_the_description(server, api, tmp_path):
    _some(api)
    told = _tried(server, tmp_path, "--seed", "7", "--max-examples", "3", "--phases", "fuzzing", "--max-time", "10")
    assert "No issues found" in told or "passed" in told


@pytest.mark.long
def test_answers_conform_to_the_description_for_long(server, api, tmp_path):
    _some(api)
    _tried(server, tmp_path, "--seed", "11", "--max-examples", "60", "--max-time", "1200")
