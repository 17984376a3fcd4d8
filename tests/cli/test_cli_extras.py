"""A base install: what a command needs besides is told in one sentence, before the command says that it has begun."""

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
def test_a_command_names_its_extra_before_anything_else(call, monkeypatch, extra, module):
    monkeypatch.setitem(sys.modules, module, None)
    command = {"server": "serve"}.get(extra, extra)
    shown = call(command, code=1)
    assert shown.stdout == ""
    assert shown.stderr == (
        f"recollect: `recollect {command}` needs the {extra} extra: pip install 'recollect[{extra}]' "
        f"(missing: {module}).\n"
    )


def test_a_model_of_a_provider_names_the_chat_extra(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "recollect.agent.provider", None)
    shown = call("chat", "-m", "anthropic:some-model", given="Hello", code=1)
    assert "install Recollect with its chat extra: pip install 'recollect[chat]'" in shown.stderr
    assert shown.stderr.count("\n") == 1


def test_the_demo_answers_through_a_pipe_without_any_extra(call, monkeypatch):
    for module in ("recollect.agent.provider", "prompt_toolkit"):
        monkeypatch.setitem(sys.modules, module, None)
    assert call("chat", given="What is 6 * 7?").stdout.strip() == "6 * 7 = **42**"


def test_a_model_without_a_key_is_told_in_the_words_of_the_command_line(call):
    shown = call("chat", "-m", "anthropic:some-model", given="Hello", code=1)
    assert shown.stderr == (
        "recollect: 'anthropic:some-model' can not be asked: it needs a key. Set ANTHROPIC_API_KEY in the environment, "
        "or model.api_key in the configuration. The model 'demo' needs no key and no network.\n"
    )


@pytest.mark.parametrize(
    "options", [("-m", "anthropic:some-model"), ("-m", "x"), ("--context", "nowhere", "-n", "Named")]
)
def test_a_talk_that_can_not_begin_leaves_no_conversation_behind(call, options):
    call("chat", given="Hello")
    before = call("sessions", "list").stdout
    call("chat", *options, given="Hello", code=3 if "--context" in options else 1)
    assert call("sessions", "list").stdout == before


@pytest.mark.parametrize("name", ["allow", "chats"])
def test_telegram_takes_ids_and_no_names(call, name):
    more = {"RECOLLECT_TELEGRAM_TOKEN": "123:AA", f"RECOLLECT_TELEGRAM_{name.upper()}": "-100123,@ann"}
    shown = call("telegram", code=1, **more)
    assert f"channels.telegram.{name} takes ids, which are numbers; '@ann' is none." in shown.stderr


@pytest.mark.parametrize("bot", ["discord", "telegram"])
def test_a_bot_has_the_agent_that_the_configuration_describes(call, monkeypatch, tmp_path, bot):
    file = tmp_path / "config.toml"
    file.write_text(
        f'[model]\nname = "anthropic:some-model"\napi_key = "secret"\n[mcp.files]\ncommand = ["some-server"]\n'
        f'[channels.{bot}]\ntoken = "123:AA"\n'
    )
    made = []

    async def run(agent, _config):
        made.append(agent)

    monkeypatch.setattr(f"recollect.cli.{bot}._serve", run)
    call(bot, RECOLLECT_CONFIG=str(file))
    call(bot, "-m", "openai:other", RECOLLECT_CONFIG=str(file))
    assert [agent.model_name for agent in made] == ["anthropic:some-model", "openai:other"]
    assert [[server.name for server in agent.mcp] for agent in made] == [["files"], ["files"]]
