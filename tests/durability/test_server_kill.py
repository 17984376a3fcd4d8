"""kill -9 of a server, and of a talk through a pipe, while they write: what was acknowledged is there, once."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time

import httpx
import pytest

import recollect

LIMIT = 60.0
SESSIONS = 6


@pytest.fixture
def started():
    """Give what starts processes; whatever happens, none is left behind."""
    made = []

    def start(path, *arguments, **options):
        plain = {name: value for name, value in os.environ.items() if not name.startswith("RECOLLECT_")}
        home = pathlib.Path(path).parent
        told = {
            "RECOLLECT_DB": str(path),
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "LC_ALL": "C.UTF-8",
        }
        made.append(
            subprocess.Popen(
                [sys.executable, "-m", "recollect", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env={**plain, **told, "PYTHONUNBUFFERED": "1"}, **options,
            )
        )  # fmt: skip
        return made[-1]

    yield start
    for process in made:
        if process.poll() is None:
            process.kill()
        process.wait(LIMIT)
        process.stdout.close()


def serve(started, path):
    """Start a server, and give a client of it once it answers."""
    process = started(path, "serve", "--port", "0")
    line = process.stdout.readline().decode()
    address, _, token = line.rpartition(" ")[2].strip().partition("/#token=")
    client = httpx.Client(base_url=f"{address}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=LIMIT)
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        try:
            client.get("/health")
        except httpx.TransportError:
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.02)
        else:
            return process, client
    raise AssertionError("The server did not come up.")


class Talker:
    """Says one thing after another in a session until the server is gone; knows what it was told is stored."""

    def __init__(self, number, ledger):
        self.session, self.stored, self.sent = f"s{number}", ledger, 0
        self.streams = bool(number % 2)

    def talk(self, client, first):
        client.put(f"/sessions/{self.session}")
        for number in range(first, first + 10_000):
            text = f"say {self.session} {number}"
            try:
                self._say(client, text, f"{self.session}-{number}")
            except httpx.TransportError:
                return number + 1
        return first + 10_000

    def _say(self, client, text, key):
        """Say something until it is taken: the answer before it may not be complete yet."""
        body, headers = {"text": text}, {"Idempotency-Key": key}
        while True:
            if self.streams:
                headers["Accept"] = "text/event-stream"
                with client.stream("POST", f"/sessions/{self.session}/chat", json=body, headers=headers) as answer:
                    for line in answer.iter_lines():
                        if line == "event: turn_started":
                            self.stored.add((self.session, text))
                    status = answer.status_code
            else:
                status = client.post(f"/sessions/{self.session}/chat", json=body, headers=headers).status_code
                if status == 202:
                    self.stored.add((self.session, text))
            if status < 300:
                return
            assert status == 409, status
            time.sleep(0.005)


def look(path, stored):
    """Every acknowledged question is there once, and the store is sound."""
    with recollect.open(path) as store:
        found = {}
        for session in store.list_sessions(limit=1_000):
            for message in session.messages():
                if message.role == "user":
                    found[session.id, message.text] = found.get((session.id, message.text), 0) + 1
        assert {question: found.get(question, 0) for question in stored if found.get(question, 0) != 1} == {}
        assert {question: times for question, times in found.items() if times > 1} == {}
        assert store.check(deep=True).problems == ()
    return len(found)


def kills_of_a_server(started, path, sound, kills, seed):
    dice, stored, first = random.Random(seed), set(), 0
    talkers = [Talker(number, stored) for number in range(SESSIONS)]
    for _ in range(kills):
        process, client = serve(started, path)
        with contextlib.closing(client), concurrent.futures.ThreadPoolExecutor(SESSIONS) as pool:
            left_behind(client, talkers)
            before = len(stored)
            working = [pool.submit(talker.talk, client, first) for talker in talkers]
            until = time.monotonic() + LIMIT
            while len(stored) == before and time.monotonic() < until:
                time.sleep(0.005)
            time.sleep(dice.uniform(0.0, 0.4))
            process.kill()
            process.wait(LIMIT)
            first = max(work.result(LIMIT) for work in working)
        look(path, stored)
    process, client = serve(started, path)
    with contextlib.closing(client):
        interrupted = left_behind(client, talkers)
        for talker in talkers:  # nobody is locked out, and a repeated key is what it was
            if (session := client.get(f"/sessions/{talker.session}")).status_code == 200 and session.json()[
                "message_count"
            ]:
                said = client.post(f"/sessions/{talker.session}/chat", json={"text": "say after all"})
                assert said.status_code == 202, said.text
    process.terminate()
    process.wait(LIMIT)
    assert b"Traceback" not in process.stdout.read()
    asked = look(path, stored)
    sound(path)
    assert len(stored) >= kills
    print(
        f"{kills} kills of a server, {len(stored)} questions acknowledged of {asked} stored, {interrupted} turns interrupted, none lost or twice"
    )


def left_behind(client, talkers):
    """Count the turns that a killed server left open: none is open any more, each is marked."""
    marked = 0
    for talker in talkers:
        answer = client.get(f"/sessions/{talker.session}/turns", params={"limit": 1_000})
        if answer.status_code == 200:
            statuses = [turn["status"] for turn in answer.json()["turns"]]
            assert "open" not in statuses
            marked = marked + statuses.count("interrupted")
    return marked


def test_a_server_that_is_killed(started, path, sound):
    kills_of_a_server(started, path, sound, 2, 1)


@pytest.mark.long
def test_a_server_that_is_killed_a_hundred_times(started, path, sound):
    kills_of_a_server(started, path, sound, 120, 2)


def kills_of_a_talk(started, path, sound, kills, seed):
    """Kill talks through a pipe at any moment; several at once, each in a session of its own."""
    dice, stored, number = random.Random(seed), set(), 0
    while number < kills:
        talks = []
        for _ in range(min(3, kills - number)):
            name, text = f"p{number % 3}", f"Tell me a story in {number + 2} chapters"
            process = started(path, "chat", "--session", name, "--json", stdin=subprocess.PIPE)
            process.stdin.write(text.encode())
            process.stdin.close()
            talks.append((process, f"cli:{name}", text))
            number += 1
        waiting = [threading.Thread(target=cut, args=(*talk, stored, dice.uniform(0.0, 0.3))) for talk in talks]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join(LIMIT)
        look(path, stored)
    with recollect.open(path) as store:
        for name in sorted({session for session, _ in stored}):
            session = store.session(name)
            assert "open" not in {turn.status for turn in session.turns()}
            with session.turn("after all", wait=0) as turn:
                turn.add({"role": "assistant", "content": "yes"})
    sound(path)
    assert stored
    print(f"{number} kills of `recollect chat`, {len(stored)} questions acknowledged, none lost or twice")


def cut(process, session, text, stored, later):
    """Kill a talk some time after it said that the turn has begun."""
    for line in process.stdout:
        told = json.loads(line) if line.startswith(b"{") else {}
        if told.get("event") == "turn_started":
            stored.add((session, text))
            break
    time.sleep(later)
    process.kill()
    process.wait(LIMIT)


def test_a_talk_through_a_pipe_that_is_killed(started, path, sound):
    kills_of_a_talk(started, path, sound, 3, 3)


@pytest.mark.long
def test_a_talk_through_a_pipe_that_is_killed_a_hundred_times(started, path, sound):
    kills_of_a_talk(started, path, sound, 102, 4)
