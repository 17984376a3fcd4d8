"""A disk that fails at random: `python faulty.py <path> <percent> <seed> <writes>`, under `fiu-run -x`.

libfiu makes some calls of read, write, sync and truncate fail. A write that fails is repeated with its key until it
succeeds, as a careful program does. It prints the errors by class as JSON.
"""

from __future__ import annotations

import asyncio
import collections
import ctypes
import json
import sys

import recollect
from recollect.errors import RecollectError, StoreError

CALLS = (b"posix/io/rw/*", b"posix/io/sync/*", b"posix/io/oc/open", b"posix/io/dir/*")
MAX_TRIES = 200  # attempts per write. At 5% failing calls, a write needs far fewer
_FAILURE_NUMBER = 1  # the number that libfiu returns at a failing call; nothing reads it


class Faults:
    """Turns the faults on for the time of a `with` block."""

    def __init__(self, percent: float) -> None:
        self.library = ctypes.CDLL("libfiu.so.0")
        self.library.fiu_init(0)
        self.probability = ctypes.c_float(percent / 100)

    def __enter__(self):
        for name in CALLS:
            self.library.fiu_enable_random(name, _FAILURE_NUMBER, None, 0, self.probability)
        return self

    def __exit__(self, *_):
        for name in CALLS:
            self.library.fiu_disable(name)


def user_message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def retry(action, error_counts: collections.Counter):
    """Repeat an action until it succeeds; every error must be a StoreError."""
    for _ in range(MAX_TRIES):
        try:
            return action()
        except StoreError as error:
            error_counts[type(error).__name__] += 1
    raise AssertionError(f"no try succeeded: {dict(error_counts)}")


async def retry_async(action, error_counts: collections.Counter):
    for _ in range(MAX_TRIES):
        try:
            return await action()
        except StoreError as error:
            error_counts[type(error).__name__] += 1
    raise AssertionError(f"no try succeeded: {dict(error_counts)}")


def append_serially(path: str, faults: Faults, writes: int, error_counts: collections.Counter) -> None:
    store = recollect.open(path, timeout=5)
    session = store.session("cli:one")
    session.append(user_message("0"), key="0")
    session.messages(last=3)  # loads the modules before the faults begin
    with faults:
        for number in range(1, writes):
            retry(lambda number=number: session.append(user_message(str(number)), key=str(number)), error_counts)
            if number % 10 == 0:
                messages = retry(lambda: session.messages(last=3), error_counts)
                assert [message.text for message in messages][-1] == str(number)
    store.close()


async def append_concurrently(path: str, faults: Faults, writes: int, error_counts: collections.Counter) -> None:
    async with recollect.open_async(path, timeout=5) as store:
        sessions = [await store.session(f"cli:{task}") for task in range(8)]

        async def write_session(session) -> None:
            for number in range(writes // 8):
                await retry_async(
                    lambda number=number: session.append(user_message(str(number)), key=str(number)), error_counts
                )

        with faults:
            await asyncio.gather(*map(write_session, sessions))


def main() -> None:
    path, percent, seed, writes = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    ctypes.CDLL(None).srandom(seed)
    error_counts: collections.Counter = collections.Counter()
    faults = Faults(percent)
    append_serially(path, faults, writes, error_counts)
    asyncio.run(append_concurrently(path, faults, writes, error_counts))
    with recollect.open(path) as store:
        problems = [finding.message for finding in store.maintenance.check().problems]
        assert not problems, problems
        assert [m.text for m in store.session("cli:one").messages()] == [str(n) for n in range(writes)]
        for task in range(8):
            assert [m.text for m in store.session(f"cli:{task}").messages()] == [str(n) for n in range(writes // 8)]
    print(json.dumps({"written": writes + writes // 8 * 8, "errors": dict(error_counts)}))


if __name__ == "__main__":
    try:
        main()
    except RecollectError as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from error
