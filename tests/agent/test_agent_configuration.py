"""The agent that the configuration describes."""

from __future__ import annotations

import pytest

import recollect
from recollect.agent import configured
from recollect.config.effective import load


@pytest.fixture
def written(tmp_path, monkeypatch):
    for name in ("RECOLLECT_MODEL", "RECOLLECT_BASE_URL", "RECOLLECT_API_KEY", "RECOLLECT_CONTEXT_WINDOW"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RECOLLECT_DB", str(tmp_path / "store.db"))

    def write(text):
        path = tmp_path / "config.toml"
        path.write_text(text)
        monkeypatch.setenv("RECOLLECT_CONFIG", str(path))

    return write


async def test_nothing_configured_is_the_demo(written):
    async with configured() as agent:
        assert agent.model().name == "demo"
        assert (await agent.ask("What is 6 * 7?", "cli:one")).text == "6 * 7 = **42**"


async def test_the_model_comes_from_the_file(written):
    written('[model]\nname = "local-model"\nbase_url = "http://127.0.0.1:9/v1"\ncontext_window = 9000\n')
    agent = configured(":memory:")
    assert (agent.model().name, agent.model().window) == ("local-model", 9000)


async def test_what_is_given_counts_more(written, monkeypatch):
    written('[model]\nname = "anthropic:far"\n')
    monkeypatch.setenv("RECOLLECT_CONTEXT_WINDOW", "8000")
    agent = configured(":memory:", model="demo", name="other", compact=True)
    assert (agent.model().name, agent.model().window, agent.name, agent.compact) == ("demo", 8000, "other", True)


async def test_a_store_and_a_configuration_that_are_there_are_used(written, tmp_path):
    read = load()
    written("[model]\nname = 1\n")
    async with await recollect.open_async(tmp_path / "mine.db") as store:
        agent = configured(store, config=read)
        async with agent:
            await agent.ask("hello", "cli:two")
        assert (await store.session("cli:two", create=False)).message_count == 2
    with pytest.raises(recollect.InvalidConfig):
        configured(":memory:")
