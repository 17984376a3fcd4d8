"""A base install: a command names a missing extra in one line, before any other output."""

from __future__ import annotations

import sys

import pytest


@pytest.mark.parametrize(
    ("extra", "module"),
    [
        ("server", "uvicorn"),
        ("server", "litestar"),
        ("server", "nh3"),
        ("discord", "discord"),
        ("telegram", "telegram"),
    ],
)
def test_a_command_names_its_missing_extra_first(call, monkeypatch, extra, module):
    monkeypatch.setitem(sys.modules, module, None)
    command = {"server": "serve"}.get(extra, extra)
    result = call(command, code=1)
    assert result.stdout == ""
    assert result.stderr == (
        f"recollect: `recollect {command}` needs the {extra} extra: pip install 'recollect[{extra}]' "
        f"(missing: {module}).\n"
    )


def test_a_model_of_a_provider_names_the_chat_extra(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "recollect.agent.provider", None)
    result = call("chat", "-m", "anthropic:some-model", stdin="Hello", code=1)
    assert "needs the chat extra: pip install 'recollect[chat]'" in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_demo_answers_through_a_pipe_without_any_extra(call, monkeypatch):
    for module in ("recollect.agent.provider", "prompt_toolkit"):
        monkeypatch.setitem(sys.modules, module, None)
    assert call("chat", stdin="What is 6 * 7?").stdout.strip() == "6 * 7 = **42**"


def test_the_error_for_a_missing_key_names_the_settings(call):
    result = call("chat", "-m", "anthropic:some-model", stdin="Hello", code=1)
    assert result.stderr == (
        "recollect: 'anthropic:some-model' cannot be used: it needs a key. Set ANTHROPIC_API_KEY in the environment, "
        "or model.api_key in the configuration. The model 'demo' needs no key and no network.\n"
    )


@pytest.mark.parametrize(
    "options", [("-m", "anthropic:some-model"), ("-m", "x"), ("--context", "nowhere", "-n", "Named")]
)
def test_a_chat_that_cannot_start_leaves_no_conversation(call, options):
    call("chat", stdin="Hello")
    before = call("sessions", "list").stdout
    call("chat", *options, stdin="Hello", code=3 if "--context" in options else 1)
    assert call("sessions", "list").stdout == before


@pytest.mark.parametrize("name", ["allow", "chats"])
def test_telegram_accepts_only_numeric_ids(call, name):
    variables = {"RECOLLECT_TELEGRAM_TOKEN": "123:AA", f"RECOLLECT_TELEGRAM_{name.upper()}": "-100123,@ann"}
    result = call("telegram", code=1, **variables)
    assert f"channels.telegram.{name} must contain numeric ids, got '@ann'." in result.stderr


@pytest.mark.parametrize("bot", ["discord", "telegram"])
def test_a_bot_uses_the_configured_agent(call, monkeypatch, tmp_path, bot):
    file = tmp_path / "config.toml"
    file.write_text(
        f'[model]\nname = "anthropic:some-model"\napi_key = "secret"\n[mcp.files]\ncommand = ["some-server"]\n'
        f'[channels.{bot}]\ntoken = "123:AA"\n'
    )
    agents = []

    async def run(agent, _config):
        agents.append(agent)

    monkeypatch.setattr(f"recollect.cli.bots._serve_{bot}", run)
    call(bot, RECOLLECT_CONFIG=str(file))
    call(bot, "-m", "openai:other", RECOLLECT_CONFIG=str(file))
    assert [agent.model_name for agent in agents] == ["anthropic:some-model", "openai:other"]
    assert [[server.name for server in agent.mcp] for agent in agents] == [["files"], ["files"]]
