"""Claude Code itself, with a scripted model: tools, a sub-agent, a kill, and a resume on another machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from claude_agent_sdk_provider import serve_model

import recollect
from recollect.integrations.claude_agent_sdk import RecollectSessionStore
from recollect.sync import import_files

_PROGRAM = Path(__file__).parent / "claude_agent_sdk_run.py"
_TIMEOUT = 60  # seconds for a run, which takes 3 to 5


class _Machine:
    """A home folder with a configuration of Claude Code, and the project, which has the same path on each machine."""

    def __init__(self, folder, project, model, url):
        self.config, self.project, self.url = folder / "config", project, url
        (folder / "tmp").mkdir(parents=True)
        self.variables = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder / "tmp"),
            "CLAUDE_CONFIG_DIR": str(self.config), "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "not-a-key",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1", "PYTHONPATH": os.pathsep.join(sys.path),
        }  # fmt: skip

    def start(self, prompt, *resume):
        """Start a run in a process group of its own."""
        arguments = [sys.executable, str(_PROGRAM), self.url, str(self.project), prompt, *resume]
        return subprocess.Popen(
            arguments, env=self.variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip

    def run(self, prompt, *resume):
        """Run a prompt, and return the id of the session."""
        process = self.start(prompt, *resume)
        try:
            output, _ = process.communicate(timeout=_TIMEOUT)
        finally:
            _kill(process)
        assert process.returncode == 0, output
        results = [json.loads(line) for line in output.splitlines() if line.startswith('{"type": "ResultMessage"')]
        assert results, output
        assert "mirror_error" not in output
        return results[-1]["session"]


def _kill(process):
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _load(url, session):
    """Return the entries of each transcript of a session by its path."""

    async def main():
        async with RecollectSessionStore.from_url(url) as sessions:
            async with recollect.open_async(url) as store:
                info = await store.get_session(f"claude-code:{session}")
            key = {"project_key": info.working_dir.replace("/", "-").replace("_", "-"), "session_id": session}
            transcripts = {None: await sessions.load(key)}
            for path in await sessions.list_subkeys(key):
                transcripts[path] = await sessions.load({**key, "subpath": path})
            return transcripts

    return anyio.run(main)


@pytest.fixture
def model():
    """Return a running server of the scripted model."""
    with serve_model() as server:
        yield server


def test_a_killed_run_is_resumed_on_another_machine(url, tmp_path, model):
    project = tmp_path / "project"
    project.mkdir()
    one, other = (_Machine(tmp_path / name, project, model, url) for name in ("one", "other"))
    session = one.run("script: bash: echo alpha | agent: bash: echo beta + The sub-agent is ready. | All of it works.")
    id = f"claude-code:{session}"
    with recollect.open(url) as store:
        conversation = store.session(id, create=False)
        assert conversation.messages()[5].text == "All of it works."
        [delegate] = store.list_sessions(parent=id, delegates=None)
        assert (delegate.relation, delegate.title) == ("delegate", "Count files")
        assert "beta" in str(store.session(delegate.id).messages()[2].parts)
        assert [call.tool for call in conversation.messages()[1].parts] == ["Bash"]
        assert conversation.messages()[1].output_tokens > 0

    process = one.start("script: bash: echo gamma | wait", session)
    try:
        assert model.is_waiting.wait(_TIMEOUT), process.communicate(timeout=5)
        durable = {}
        deadline = time.monotonic() + _TIMEOUT
        while "gamma" not in str([entry.get("toolUseResult") for entry in durable.get(None, ())]):
            assert time.monotonic() < deadline, durable
            durable = _load(url, session)
    finally:
        _kill(process)
    transcripts = _load(url, session)
    for path, entries in durable.items():
        assert transcripts[path][: len(entries)] == entries

    model.is_waiting.clear()
    assert other.run("script: Resumed well.", session) == session
    request = json.dumps(model.requests[-1]["messages"])
    for text in ("echo alpha", "All of it works.", "echo gamma", "gamma"):
        assert text in request
    final = _load(url, session)
    for path, entries in transcripts.items():
        assert final[path][: len(entries)] == entries

    with recollect.open(url) as store:
        report = import_files(store, [one.config, other.config])
        assert {item.outcome for item in report.conversations} <= {"unchanged"}
        conversation = store.session(id, create=False)
        conversation.append({"role": "user", "content": "And with another model?"})
        history = conversation.history("openai")
        assert [message["content"] for message in history[-2:]] == ["Resumed well.", "And with another model?"]
        assert [message["role"] for message in history if "alpha" in str(message.get("content"))][-1] == "tool"
        assert {hit.session for hit in store.search("resumed well")} == {id}
        assert store.maintenance.check().ok
