"""Tests of bots are coroutines: each runs in an event loop of its own, with a limit so that none hangs."""

from __future__ import annotations

import asyncio
import inspect

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def limited():
        async with asyncio.timeout(240):
            await pyfuncitem.obj(**arguments)

    asyncio.run(limited())
    return True
