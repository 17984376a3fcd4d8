"""A network that fails at random: `python faulty_network.py <url> <percent> <seed> <writes>`, under `fiu-run -x`.

libfiu makes some recv() and connect() calls fail after the server has received a statement. Nothing here is repeated and
nothing has an idempotency key: the engine finds out whether a change was committed. It prints the number of writes as JSON.
"""

from __future__ import annotations

import ctypes
import json
import sys

import faulty

import recollect

# Not send(): libpq reports a failed send only at the end of the data that it receives, which an injected fault never ends.
CALLS = (b"posix/io/net/recv", b"posix/io/net/connect", b"posix/io/net/socket")


def write(session: recollect.Session, number: int) -> None:
    answer = {"role": "assistant", "content": f"answer {number}"}
    if number % 3 == 0:
        session.append(faulty.user_message(str(number)))
        session.append(answer)
    elif number % 3 == 1:
        session.save_turn(str(number), answer)
    else:
        with session.turn(str(number)) as turn:
            turn.add(answer)


def main() -> None:
    url, percent, seed, writes = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    faulty.CALLS = CALLS
    ctypes.CDLL(None).srandom(seed)
    with recollect.open(url, timeout=60) as store:
        session = store.session("cli:faulty")
        with faulty.Faults(percent):
            for number in range(writes):
                write(session, number)
                if number % 10 == 0:
                    assert [message.text for message in session.messages(last=2)] == [str(number), f"answer {number}"]
    with recollect.open(url) as store:
        session = store.session("cli:faulty")
        expected = [text for number in range(writes) for text in (str(number), f"answer {number}")]
        assert [message.text for message in session.messages()] == expected
        assert {turn.status for turn in session.turns.list()} == {"completed"}
        assert store.maintenance.check().problems == ()
    print(json.dumps({"written": 2 * writes}))


if __name__ == "__main__":
    main()
