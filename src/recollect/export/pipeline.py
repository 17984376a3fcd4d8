"""Pipelines: generators that yield operations and chunks of output, run by a sync or an async store.

A pipeline receives the result of each operation that it yields; the bytes that it yields are the output. Memory holds
one chunk at a time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from recollect.errors import Corrupted
from recollect.storage.operation import Operation, Plan, Scope

if TYPE_CHECKING:
    from recollect.store import Store
    from recollect.store_async import AsyncStore

T = TypeVar("T")

_BATCH_BYTES = 256 * 1024  # bytes of output per thread switch. One switch per message would slow down a long export.

Pipeline = Generator[Operation[Any] | bytes, Any, T]


def scope_of(store: Store | AsyncStore) -> Scope:
    """Return the first argument of the operations that a store runs."""
    return store._scope()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def run_operation(store: Store, op: Operation[T]) -> T:
    """Run an operation in one transaction. An export and a copy read rows, for which a store has no public method."""
    return store._run(op)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def run_plan(store: Store, plan: Plan[T]) -> T:
    """Run a plan, each operation of which is one transaction."""
    return store._follow(plan)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


async def run_operation_async(store: AsyncStore, op: Operation[T]) -> T:
    """Run an operation with an async store, as run_operation() does."""
    return await store._run(op)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def execute(op: Operation[T]) -> Pipeline[T]:
    """Run an operation, and return its result."""
    return (yield op)


def _send(pipeline: Pipeline[Any], result: Any, path: str) -> Operation[Any] | bytes:
    """Send a result into a pipeline. Stored data that cannot be decoded raises Corrupted."""
    try:
        return pipeline.send(result)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupted(path=path, reason=f"stored data cannot be decoded ({error})") from error


def stream_output(store: Store, pipeline: Pipeline[Any]) -> Iterator[bytes]:
    """Run a pipeline with a store, and yield its output."""
    result: Any = None
    while True:
        try:
            item = _send(pipeline, result, store.path)
        except StopIteration:
            return
        result = None
        if isinstance(item, Operation):
            result = run_operation(store, item)
        else:
            yield item


async def stream_output_async(store: AsyncStore, pipeline: Pipeline[Any]) -> AsyncIterator[bytes]:
    """Run a pipeline with an async store, and yield its output.

    The pipeline runs in a thread: rendering or masking a page of long messages would block the event loop for too long.
    """
    from asyncio import to_thread  # noqa: PLC0415  asyncio costs 40 ms at start

    result: Any = None
    while True:
        pieces, op = await to_thread(_advance_to_operation, pipeline, result, store.path)
        for piece in pieces:
            yield piece
        if op is not None:
            result = await run_operation_async(store, op)
        elif not pieces:
            return
        else:
            result = None


def _advance_to_operation(pipeline: Pipeline[Any], result: Any, path: str) -> tuple[list[bytes], Operation[Any] | None]:
    """Run a pipeline to its next operation or until a batch is full. Return the output and the operation, if any.

    At the end of the pipeline, both are empty. A thread switch per chunk would cost more than the chunk.
    """
    pieces: list[bytes] = []
    size = 0
    while size < _BATCH_BYTES:
        try:
            item = _send(pipeline, result, path)
        except StopIteration:
            break
        if isinstance(item, Operation):
            return pieces, item
        result = None
        pieces.append(item)
        size += len(item)
    return pieces, None


def run_to_result(store: Store, pipeline: Pipeline[T]) -> T:
    """Run a pipeline that has no output, and return its result. An operation's error is raised inside the pipeline."""
    step: Any = pipeline.send
    value: Any = None
    try:
        while True:
            op: Any = step(value)
            try:
                step, value = pipeline.send, run_operation(store, op)
            except Exception as error:  # noqa: BLE001  the pipeline handles it
                step, value = pipeline.throw, error
    except StopIteration as stop:
        return stop.value


async def run_to_result_async(store: AsyncStore, pipeline: Pipeline[T]) -> T:
    """Run a pipeline that has no output with an async store. It runs in a thread, as in stream_output_async()."""
    from asyncio import to_thread  # noqa: PLC0415

    step: Any = pipeline.send
    value: Any = None
    while True:
        op, stop = await to_thread(_advance, step, value)
        if stop is not None:
            return stop.value
        try:
            step, value = pipeline.send, await run_operation_async(store, op)
        except Exception as error:  # noqa: BLE001
            step, value = pipeline.throw, error


def _advance(step: Any, value: Any) -> tuple[Any, StopIteration | None]:
    """Run a pipeline to its next operation, or return its StopIteration, which a future cannot carry."""
    try:
        return step(value), None
    except StopIteration as stop:
        return None, stop
