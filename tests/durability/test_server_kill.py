"""kill -9 of `recollect serve` and `recollect chat` while they write: every acknowledged question is stored once."""

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

TIMEOUT = 60.0  # seconds; only a failure reaches it
SESSIONS = 6  # clients that chat at the same time, each in its own session


@pytest.fixture
def start_process():
    """Return a function that starts `recollect` processes; all of them are killed after the test."""
    processes = []

    def start(path, *arguments, **options):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RECOLLECT_")}
        home = pathlib.Path(path).parent
        settings = {
            "RECOLLECT_DB": str(path),
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "LC_ALL": "C.UTF-8",
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "recollect", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env={**environment, **settings, "PYTHONUNBUFFERED": "1"}, **options,
            )
        )  # fmt: skip
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait(TIMEOUT)
        process.stdout.close()


def serve(start_process, path):
    """Start a server, wait until it responds, and return its process and a client."""
    process = start_process(path, "serve", "--port", "0")
    line = process.stdout.readline().decode()
    address, _, token = line.rpartition(" ")[2].strip().partition("/#token=")
    client = httpx.Client(base_url=f"{address}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT)
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        try:
            client.get("/health")
        except httpx.TransportError:
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.02)
        else:
            return process, client
    raise AssertionError("the server did not start")


class ChatClient:
    """Sends one message after another until the server ends, and records the acknowledged ones."""

    def __init__(self, number, acknowledged_questions):
        self.session, self.acknowledged_questions = f"s{number}", acknowledged_questions
        self.streams = bool(number % 2)

    def send_messages(self, client, first):
        client.put(f"/sessions/{self.session}")
        for number in range(first, first + 10_000):
            text = f"say {self.session} {number}"
            try:
                self._send(client, text, f"{self.session}-{number}")
            except httpx.TransportError:
                return number + 1
        return first + 10_000

    def _send(self, client, text, key):
        """Send a message until it is accepted: the previous answer may not be complete yet."""
        body, headers = {"text": text}, {"Idempotency-Key": key}
        while True:
            if self.streams:
                headers["Accept"] = "text/event-stream"
                with client.stream("POST", f"/sessions/{self.session}/chat", json=body, headers=headers) as answer:
                    for line in answer.iter_lines():
                        if line == "event: turn_started":
                            self.acknowledged_questions.add((self.session, text))
                    status = answer.status_code
            else:
                status = client.post(f"/sessions/{self.session}/chat", json=body, headers=headers).status_code
                if status == 202:
                    self.acknowledged_questions.add((self.session, text))
            if status < 300:
                return
            assert status == 409, status
            time.sleep(0.005)


def check_questions(path, questions):
    """Check that every acknowledged question is stored once and the store has no problems; return their number."""
    with recollect.open(path) as store:
        counts = {}
        for session in store.list_sessions(limit=1_000):
            for message in session.messages():
                if message.role == "user":
                    counts[session.id, message.text] = counts.get((session.id, message.text), 0) + 1
        assert {question: counts.get(question, 0) for question in questions if counts.get(question, 0) != 1} == {}
        assert {question: count for question, count in counts.items() if count > 1} == {}
        assert store.maintenance.check(deep=True).problems == ()
    return len(counts)


def kill_server_repeatedly(start_process, path, check_database, kills, seed):
    rng, acknowledged_questions, first = random.Random(seed), set(), 0
    clients = [ChatClient(number, acknowledged_questions) for number in range(SESSIONS)]
    for _ in range(kills):
        process, client = serve(start_process, path)
        with contextlib.closing(client), concurrent.futures.ThreadPoolExecutor(SESSIONS) as pool:
            count_interrupted(client, clients)
            before = len(acknowledged_questions)
            futures = [pool.submit(chat_client.send_messages, client, first) for chat_client in clients]
            deadline = time.monotonic() + TIMEOUT
            while len(acknowledged_questions) == before and time.monotonic() < deadline:
                time.sleep(0.005)
            time.sleep(rng.uniform(0.0, 0.4))
            process.kill()
            process.wait(TIMEOUT)
            first = max(future.result(TIMEOUT) for future in futures)
        check_questions(path, acknowledged_questions)
    process, client = serve(start_process, path)
    with contextlib.closing(client):
        interrupted = count_interrupted(client, clients)
        for chat_client in clients:  # no session stays locked
            if (session := client.get(f"/sessions/{chat_client.session}")).status_code == 200 and session.json()[
                "message_count"
            ]:
                response = client.post(f"/sessions/{chat_client.session}/chat", json={"text": "say after all"})
                assert response.status_code == 202, response.text
    process.terminate()
    process.wait(TIMEOUT)
    assert b"Traceback" not in process.stdout.read()
    question_count = check_questions(path, acknowledged_questions)
    check_database(path)
    assert len(acknowledged_questions) >= kills
    print(
        f"{kills} kills of a server, {len(acknowledged_questions)} questions acknowledged of {question_count} stored, {interrupted} turns interrupted, none lost or twice"
    )


def count_interrupted(client, clients):
    """Return the number of interrupted turns, and check that no turn is open."""
    interrupted = 0
    for chat_client in clients:
        answer = client.get(f"/sessions/{chat_client.session}/turns", params={"limit": 1_000})
        if answer.status_code == 200:
            statuses = [turn["status"] for turn in answer.json()["turns"]]
            assert "open" not in statuses
            interrupted = interrupted + statuses.count("interrupted")
    return interrupted


def test_acknowledged_questions_survive_kills_of_a_server(start_process, path, check_database):
    kill_server_repeatedly(start_process, path, check_database, 2, 1)


@pytest.mark.long
def test_acknowledged_questions_survive_a_hundred_kills_of_a_server(start_process, path, check_database):
    kill_server_repeatedly(start_process, path, check_database, 120, 2)


def kill_chat_repeatedly(start_process, path, check_database, kills, seed):
    """Kill `recollect chat` processes at random times, several at once, each in its own session."""
    rng, acknowledged_questions, number = random.Random(seed), set(), 0
    while number < kills:
        chats = []
        for _ in range(min(3, kills - number)):
            name, text = f"p{number % 3}", f"Tell me a story in {number + 2} chapters"
            process = start_process(path, "chat", "--session", name, "--json", stdin=subprocess.PIPE)
            process.stdin.write(text.encode())
            process.stdin.close()
            chats.append((process, f"cli:{name}", text))
            number += 1
        threads = [
            threading.Thread(target=kill_after_start, args=(*chat, acknowledged_questions, rng.uniform(0.0, 0.3)))
            for chat in chats
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)
        check_questions(path, acknowledged_questions)
    with recollect.open(path) as store:
        for name in sorted({session for session, _ in acknowledged_questions}):
            session = store.session(name)
            assert "open" not in {turn.status for turn in session.turns.list()}
            with session.turn("after all", wait=0) as turn:
                turn.add({"role": "assistant", "content": "yes"})
    check_database(path)
    assert acknowledged_questions
    print(
        f"{number} kills of `recollect chat`, {len(acknowledged_questions)} questions acknowledged, none lost or twice"
    )


def kill_after_start(process, session, text, acknowledged_questions, delay):
    """Kill a chat `delay` seconds after it reported the start of its turn."""
    for line in process.stdout:
        event = json.loads(line) if line.startswith(b"{") else {}
        if event.get("event") == "turn_started":
            acknowledged_questions.add((session, text))
            break
    time.sleep(delay)
    process.kill()
    process.wait(TIMEOUT)


def test_acknowledged_questions_survive_kills_of_a_chat(start_process, path, check_database):
    kill_chat_repeatedly(start_process, path, check_database, 3, 3)


@pytest.mark.long
def test_acknowledged_questions_survive_a_hundred_kills_of_a_chat(start_process, path, check_database):
    kill_chat_repeatedly(start_process, path, check_database, 102, 4)
