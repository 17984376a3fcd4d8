"""Tests of bots are coroutines: each runs in an event loop of its own, with a limit so that none hangs."""

from __future__ import annotations

import asyncio
import inspect

import pytest


async def ended():
    """End what a test left running. A client that is cut off tells its listeners, in tasks that begin only then."""
    for _ in range(10):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            return
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def limited():
        try:
            async with asyncio.timeout(240):
                await pyfuncitem.obj(**arguments)
        finally:
            await ended()

    asyncio.run(limited())
    return True
