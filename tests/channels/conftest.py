"""Run each test that is a coroutine in its own event loop, with a time limit."""

from __future__ import annotations

import asyncio
import inspect

import pytest


async def cancel_remaining_tasks():
    """Cancel the tasks that a test left behind, repeatedly: a disconnected client starts new tasks for its listeners."""
    for _ in range(10):
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=10)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def run_with_timeout():
        try:
            async with asyncio.timeout(240):  # seconds; a test that hangs fails
                await pyfuncitem.obj(**arguments)
        finally:
            await cancel_remaining_tasks()

    asyncio.run(run_with_timeout())
    return True
