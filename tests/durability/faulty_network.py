"""A network that fails now and then: `python faulty_network.py <url> <percent> <seed> <writes>`, under `fiu-run -x`.

libfiu makes some receiving and connecting fail, while the server has what was sent. Nothing here is repeated and nothing
has a key: the engine finds out by itself what became of a change. It prints what it wrote as JSON.
"""

from __future__ import annotations

import ctypes
import json
import sys

import faulty

import recollect

# Not send(): libpq leaves the telling of a failed send to the end of what it receives, which a made-up failure has not.
CALLS = (b"posix/io/net/recv", b"posix/io/net/connect", b"posix/io/net/socket")


def write(talk: recollect.Session, number: int) -> None:
    answer = {"role": "assistant", "content": f"answer {number}"}
    if number % 3 == 0:
        talk.append(faulty.said(str(number)))
        talk.append(answer)
    elif number % 3 == 1:
        talk.save_turn(str(number), answer)
    else:
        with talk.turn(str(number)) as turn:
            turn.add(answer)


def main() -> None:
    url, percent, seed, writes = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    faulty.CALLS = CALLS
    ctypes.CDLL(None).srandom(seed)
    with recollect.open(url, timeout=60) as store:
        talk = store.session("cli:faulty")
        with faulty.Faults(percent):
            for number in range(writes):
                write(talk, number)
                if number % 10 == 0:
                    assert [message.text for message in talk.messages(last=2)] == [str(number), f"answer {number}"]
    with recollect.open(url) as store:
        talk = store.session("cli:faulty")
        expected = [text for number in range(writes) for text in (str(number), f"answer {number}")]
        assert [message.text for message in talk.messages()] == expected
        assert {turn.status for turn in talk.turns()} == {"completed"}
        assert store.check().problems == ()
    print(json.dumps({"written": 2 * writes}))


if __name__ == "__main__":
    main()
