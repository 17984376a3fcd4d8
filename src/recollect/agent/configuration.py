"""The agent that the configuration describes. Every surface talks through the one that is made here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from recollect.agent import models
from recollect.agent.agent import Agent
from recollect.store_async import AsyncStore

if TYPE_CHECKING:
    from recollect.config.effective import Config


def configured(
    store: AsyncStore | str | os.PathLike[str] | None = None,
    *,
    model: Any = None,
    base_url: str | None = None,
    config: Config | None = None,
    **options: Any,
) -> Agent:
    """Make an agent from the configuration: its model, its key, where it is reached, its window; owner, MCP servers.

    `model` and `base_url` count more than what is configured, `config` is one that was read already, and `options` are
    further arguments of Agent().
    """
    if config is None:
        from recollect.config.effective import load  # noqa: PLC0415  who brings a configuration has paid for it

        config = load()
    options.setdefault("owner", config["db.owner"] or "")
    named = config["model.name"]
    same = model is None or models.provider(named) in (None, models.provider(model))  # a key is for its own provider
    return Agent(
        model or named or models.DEMO,
        store=store,
        base_url=base_url or (config["model.base_url"] if same else None),
        api_key=config["model.api_key"] if same else None,
        window=config["model.context_window"],
        mcp=config.servers,
        **options,
    )
