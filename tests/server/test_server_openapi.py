"""The OpenAPI document: up to date, complete, and matched by the responses of the server."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from recollect.model import compaction, message, record, search, session, turn
from recollect.server.api import schemas

ROOT = pathlib.Path(__file__).parents[2]
STREAMS = ("follow_session", "follow_changes")


def test_the_committed_openapi_document_is_up_to_date(api):
    committed = json.loads((ROOT / "docs" / "openapi.json").read_text())
    assert api.get("/openapi.json").json() == committed, "Run python tools/openapi.py"
    assert committed["openapi"].startswith("3.1")


def test_every_operation_is_documented():
    committed = json.loads((ROOT / "docs" / "openapi.json").read_text())
    page = (ROOT / "docs" / "reference" / "http-api.md").read_text()
    for path, methods in committed["paths"].items():
        for method, operation in methods.items():
            assert f"`{method.upper()} {path.removeprefix('/api/v1')}`" in page, (method, path)
            assert operation["description"]
            assert "default" in operation["responses"]


def test_there_is_no_api_browser(api):
    assert api.get("/").json()["code"] == "not-found"
    for path in ("/swagger", "/redoc", "/elements", "/rapidoc", "/scalar", "/docs"):
        assert api.get(path).status_code == 404


@pytest.mark.parametrize(
    ("schema", "value", "extra_fields"),
    [
        (schemas.SessionSchema, session.SessionInfo, {"running"}),
        (schemas.MessageSchema, message.Message, {"id"}),
        (schemas.TurnSchema, turn.TurnInfo, {"id"}),
        (schemas.ToolCallSchema, message.ToolCall, set()),
        (schemas.BranchSchema, session.Branch, set()),
        (schemas.CompactionSchema, compaction.Compaction, set()),
        (schemas.SnapshotSchema, session.Snapshot, set()),
        (schemas.RecordSchema, record.Record, {"data"}),
        (schemas.HitSchema, search.Hit, {"snippet"}),
        (schemas.RepairSchema, message.Repair, set()),
    ],
)
def test_a_schema_has_the_fields_of_its_value(schema, value, extra_fields):
    assert set(schema.__struct_fields__) == set(value.__struct_encode_fields__) | extra_fields


def run_schemathesis(server, tmp_path, *options):
    """Send valid and invalid requests with schemathesis, check the responses, and return its output."""
    command = [
        str(pathlib.Path(sys.executable).parent / "schemathesis"), "run", f"{server.url}/api/v1/openapi.json",
        "-H", f"Authorization: Bearer {next(iter(server.tokens))}", "--no-color", "--warnings", "off",
        "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        "--generation-database", "none", "--no-shrink", "--request-timeout", "30",
        *(part for name in STREAMS for part in ("--exclude-operation-id", name)),
        *options,
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=1500, check=False)
    assert result.returncode == 0, result.stdout[-12_000:] + result.stderr[-2_000:]
    return result.stdout


def create_sessions(api):
    for name in ("a", "b/c"):
        path = f"/sessions/{name.replace('/', '%2F')}"
        api.put(path, json={"title": "Some"})
        messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
        api.post(f"{path}/messages", json={"messages": messages})


def test_responses_conform_to_the_openapi_document(server, api, tmp_path):
    create_sessions(api)
    output = run_schemathesis(
        server, tmp_path, "--seed", "7", "--max-examples", "3", "--phases", "fuzzing", "--max-time", "10"
    )
    assert "No issues found" in output or "passed" in output


@pytest.mark.long
def test_responses_conform_to_the_openapi_document_in_a_long_run(server, api, tmp_path):
    create_sessions(api)
    run_schemathesis(server, tmp_path, "--seed", "11", "--max-examples", "60", "--max-time", "1200")
