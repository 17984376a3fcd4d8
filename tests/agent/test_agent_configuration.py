"""The agent that the configuration describes."""

from __future__ import annotations

import pytest

import recollect
from recollect.agent import agent_from_config
from recollect.config.loader import load_config


@pytest.fixture
def write_config(tmp_path, monkeypatch):
    for name in ("RECOLLECT_MODEL", "RECOLLECT_BASE_URL", "RECOLLECT_API_KEY", "RECOLLECT_CONTEXT_WINDOW"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RECOLLECT_DB", str(tmp_path / "store.db"))

    def write(text):
        path = tmp_path / "config.toml"
        path.write_text(text)
        monkeypatch.setenv("RECOLLECT_CONFIG", str(path))

    return write


async def test_the_default_model_is_the_demo(write_config):
    async with agent_from_config() as agent:
        assert agent.model().name == "demo"
        assert (await agent.ask("What is 6 * 7?", "cli:one")).text == "6 * 7 = **42**"


async def test_the_model_comes_from_the_configuration_file(write_config):
    write_config('[model]\nname = "local-model"\nbase_url = "http://127.0.0.1:9/v1"\ncontext_window = 9000\n')
    agent = agent_from_config(":memory:")
    assert (agent.model().name, agent.model().window) == ("local-model", 9000)


async def test_arguments_and_environment_override_the_file(write_config, monkeypatch):
    write_config('[model]\nname = "anthropic:far"\n')
    monkeypatch.setenv("RECOLLECT_CONTEXT_WINDOW", "8000")
    agent = agent_from_config(":memory:", model="demo", name="other", compact=True)
    assert (agent.model().name, agent.model().window, agent.name, agent.compact) == ("demo", 8000, "other", True)


async def test_an_open_store_and_a_loaded_configuration_are_used(write_config, tmp_path):
    config = load_config()
    write_config("[model]\nname = 1\n")
    async with await recollect.open_async(tmp_path / "mine.db") as store:
        agent = agent_from_config(store, config=config)
        async with agent:
            await agent.ask("hello", "cli:two")
        assert (await store.session("cli:two", create=False)).message_count == 2
    with pytest.raises(recollect.errors.InvalidConfig):
        agent_from_config(":memory:")
