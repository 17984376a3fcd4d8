"""A flow: operations and pieces of output in one stream, written once and driven by either store.

A flow yields operations, whose results it is sent, and bytes, which go out. It keeps no more than it needs for the
next piece.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from recollect.errors import Corrupted
from recollect.op import Op

if TYPE_CHECKING:
    from recollect.store import Store
    from recollect.store_async import AsyncStore

T = TypeVar("T")

_AT_ONCE = 256 * 1024
"""Bytes that are made before they go out: a change of threads for each message would slow a long export."""

Flow = Generator[Op[Any] | bytes, Any, T]


def ask(op: Op[T]) -> Flow[T]:
    """Have an operation run, and give its result."""
    return (yield op)


def _sent(flow: Flow[Any], result: Any, path: str) -> Op[Any] | bytes:
    """Send a result into a flow that reads what is stored. What it can not read was damaged."""
    try:
        return flow.send(result)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupted(path=path, reason=f"what is stored can not be read ({error})") from error


def driven(store: Store, flow: Flow[Any]) -> Iterator[bytes]:
    """Drive a flow with a store, and give what goes out."""
    result: Any = None
    while True:
        try:
            item = _sent(flow, result, store.path)
        except StopIteration:
            return
        result = None
        if isinstance(item, Op):
            result = store.run(item)
        else:
            yield item


async def driven_async(store: AsyncStore, flow: Flow[Any]) -> AsyncIterator[bytes]:
    """Drive a flow with an async store, and give what goes out.

    The flow computes in a thread: rendering or masking a page of long messages takes longer than a loop may be held.
    """
    from asyncio import to_thread  # noqa: PLC0415  only who awaits loads asyncio

    result: Any = None
    while True:
        pieces, op = await to_thread(_until_op, flow, result, store.path)
        for piece in pieces:
            yield piece
        if op is not None:
            result = await store.run(op)
        elif not pieces:
            return
        else:
            result = None


def _until_op(flow: Flow[Any], result: Any, path: str) -> tuple[list[bytes], Op[Any] | None]:
    """Drive a flow to its next operation, or until enough goes out: the pieces, and the operation; neither at its end.

    Each piece alone would cost a change of threads.
    """
    pieces: list[bytes] = []
    size = 0
    while size < _AT_ONCE:
        try:
            item = _sent(flow, result, path)
        except StopIteration:
            break
        if isinstance(item, Op):
            return pieces, item
        result = None
        pieces.append(item)
        size += len(item)
    return pieces, None


def settled(store: Store, flow: Flow[T]) -> T:
    """Drive a flow that gives a result and sends nothing out. An operation's error is raised inside the flow."""
    step: Any = flow.send
    given: Any = None
    try:
        while True:
            op: Any = step(given)
            try:
                step, given = flow.send, store.run(op)
            except Exception as error:  # noqa: BLE001  the flow decides what it means
                step, given = flow.throw, error
    except StopIteration as done:
        return done.value


async def settled_async(store: AsyncStore, flow: Flow[T]) -> T:
    """Drive a flow that gives a result, with an async store. The flow computes in a thread, as in driven_async()."""
    from asyncio import to_thread  # noqa: PLC0415

    step: Any = flow.send
    given: Any = None
    while True:
        op, done = await to_thread(_stepped, step, given)
        if done is not None:
            return done.value
        try:
            step, given = flow.send, await store.run(op)
        except Exception as error:  # noqa: BLE001
            step, given = flow.throw, error


def _stepped(step: Any, given: Any) -> tuple[Any, StopIteration | None]:
    """Take a step of a flow: the operation that it asks for, or its end, which no future can carry."""
    try:
        return step(given), None
    except StopIteration as done:
        return None, done
