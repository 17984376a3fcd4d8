"""Tests of the agent are coroutines: each runs in an event loop of its own, with a limit so that none hangs."""

from __future__ import annotations

import asyncio
import inspect

import pytest

import recollect
from recollect.agent import Agent
from recollect.agent.demo import DemoModel


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def limited():
        async with asyncio.timeout(60):
            await pyfuncitem.obj(**arguments)

    asyncio.run(limited())
    return True


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "talks.db")


@pytest.fixture
def demo():
    """The demo model, which takes no time."""
    return DemoModel(pace=0)


@pytest.fixture
def agent(path, demo):
    """Make agents over the store of this test."""

    def make(model=None, **options):
        return Agent(demo if model is None else model, store=options.pop("store", path), **options)

    return make


@pytest.fixture
def stored(path):
    """Read what is on disk, with a store of its own."""

    def read(session):
        with recollect.open(path) as store:
            found = store.get_session(session)
            return found.messages(), found.turns(), found.tool_calls(), found

    return read
