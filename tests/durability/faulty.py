"""A disk that fails now and then: `python faulty.py <path> <percent> <seed> <writes>`, under `fiu-run -x`.

libfiu makes some calls of read, write, sync and truncate fail. A write that fails is repeated with its key until it
succeeds, as a careful program does. It prints what it met as JSON.
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
PATIENCE = 200
_ONE_IN_ALL = 1


class Faults:
    """Switches the faults on and off."""

    def __init__(self, percent: float) -> None:
        self.library = ctypes.CDLL("libfiu.so.0")
        self.library.fiu_init(0)
        self.share = ctypes.c_float(percent / 100)

    def __enter__(self):
        for name in CALLS:
            self.library.fiu_enable_random(name, _ONE_IN_ALL, None, 0, self.share)
        return self

    def __exit__(self, *_):
        for name in CALLS:
            self.library.fiu_disable(name)


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def insisted(action, met: collections.Counter):
    """Repeat something until it succeeds; every error on the way must be one of ours."""
    for _ in range(PATIENCE):
        try:
            return action()
        except StoreError as error:
            met[type(error).__name__] += 1
    raise AssertionError(f"it never succeeded: {dict(met)}")


async def insisted_async(action, met: collections.Counter):
    for _ in range(PATIENCE):
        try:
            return await action()
        except StoreError as error:
            met[type(error).__name__] += 1
    raise AssertionError(f"it never succeeded: {dict(met)}")


def one_by_one(path: str, faults: Faults, writes: int, met: collections.Counter) -> None:
    store = recollect.open(path, timeout=5)
    talk = store.session("cli:one")
    talk.append(said("0"), key="0")
    talk.messages(last=3)  # what is loaded for this is no file of the store's
    with faults:
        for number in range(1, writes):
            insisted(lambda number=number: talk.append(said(str(number)), key=str(number)), met)
            if number % 10 == 0:
                found = insisted(lambda: talk.messages(last=3), met)
                assert [message.text for message in found][-1] == str(number)
    store.close()


async def together(path: str, faults: Faults, writes: int, met: collections.Counter) -> None:
    async with recollect.open_async(path, timeout=5) as store:
        talks = [await store.session(f"cli:{task}") for task in range(8)]

        async def one(talk) -> None:
            for number in range(writes // 8):
                await insisted_async(lambda number=number: talk.append(said(str(number)), key=str(number)), met)

        with faults:
            await asyncio.gather(*map(one, talks))


def main() -> None:
    path, percent, seed, writes = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    ctypes.CDLL(None).srandom(seed)
    met: collections.Counter = collections.Counter()
    faults = Faults(percent)
    one_by_one(path, faults, writes, met)
    asyncio.run(together(path, faults, writes, met))
    with recollect.open(path) as store:
        problems = [finding.message for finding in store.check().problems]
        assert not problems, problems
        assert [m.text for m in store.session("cli:one").messages()] == [str(n) for n in range(writes)]
        for task in range(8):
            assert [m.text for m in store.session(f"cli:{task}").messages()] == [str(n) for n in range(writes // 8)]
    print(json.dumps({"written": writes + writes // 8 * 8, "errors met": dict(met)}))


if __name__ == "__main__":
    try:
        main()
    except RecollectError as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from error
