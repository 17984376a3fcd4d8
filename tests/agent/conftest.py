"""Fixtures of the agent tests. A test that is a coroutine runs in its own event loop, with a time limit."""

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

    async def run_with_timeout():
        async with asyncio.timeout(60):  # seconds; a test that hangs fails
            await pyfuncitem.obj(**arguments)

    asyncio.run(run_with_timeout())
    return True


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


@pytest.fixture
def demo():
    """Return the demo model, without pauses between its words."""
    return DemoModel(pace=0)


@pytest.fixture
def make_agent(path, demo):
    """Return a function that makes agents over the store of this test."""

    def make(model=None, **options):
        return Agent(demo if model is None else model, store=options.pop("store", path), **options)

    return make


@pytest.fixture
def read_session(path):
    """Return a function that reads messages, turns, tool calls and the session, through a second store."""

    def read(session_id):
        with recollect.open(path) as store:
            session = store.get_session(session_id)
            assert session is not None
            return session.messages(), session.turns.list(), session.tools.list(), session

    return read
