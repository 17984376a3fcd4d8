"""The application of docs/how-to/fastapi.md, served by uvicorn on loopback and called by HTTP clients."""

from __future__ import annotations

import contextlib
import pathlib
import re
import signal

import httpx
import pytest
from docs_programs import start, wait_until, write_programs

import recollect

PAGE = "docs/how-to/fastapi.md"
ANN, BOB = ({"Authorization": f"Bearer token-of-{name}"} for name in ("ann", "bob"))
# The application with another database, and a model that waits for the file `continue` after its first words.
SERVE = """
import asyncio, pathlib, sys
import recollect, uvicorn
import app

database, model = sys.argv[1:]
open_async = recollect.open_async
recollect.open_async = lambda path: open_async(database)

async def stream_model(messages):
    yield "It "
    await asyncio.sleep(1.5)  # the store writes received text about once a second
    while not pathlib.Path("continue").exists():
        await asyncio.sleep(0.02)
    yield "rains."

async def failing_model(messages):
    yield "It "
    raise ConnectionError

app.stream_model = {"plain": app.stream_model, "waits": stream_model, "fails": failing_model}[model]
uvicorn.run(app.app, port=0, access_log=False)
"""


@contextlib.contextmanager
def serve(database="app.db", model="waits"):
    with start("-uc", SERVE, database, model) as process:
        lines = []
        for line in process.stdout or ():
            lines.append(line)
            address = re.search(r"running on (http://\S+)", line)
            if address:
                break
        else:
            raise AssertionError("".join(lines))
        with httpx.Client(base_url=address[1], timeout=60, trust_env=False) as client:
            yield client, process


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    pytest.importorskip("fastapi")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert write_programs(PAGE, tmp_path) == ["app.py"]


def ask(client, text, headers, conversation="trip"):
    return client.post(f"/conversations/{conversation}/messages", json={"text": text}, headers=headers)


def read_texts(client, headers, conversation="trip"):
    messages = client.get(f"/conversations/{conversation}/messages", headers=headers).json()
    return [
        (message["role"], "".join(part["text"] for part in message["parts"]), message["state"]) for message in messages
    ]


def check_users(client):
    assert ask(client, "Do I need a coat?", ANN).text == "It rains (1)."
    assert ask(client, "Really?", ANN).text == "It rains (3)."
    assert ask(client, "Bob's question", BOB).text == "It rains (1)."
    assert [text for _, text, _ in read_texts(client, ANN)] == [
        "Do I need a coat?", "It rains (1).", "Really?", "It rains (3).",
    ]  # fmt: skip
    assert [text for _, text, _ in read_texts(client, BOB)] == ["Bob's question", "It rains (1)."]
    page = client.get("/conversations", headers=BOB).json()
    assert [item["id"] for item in page["items"]] == ["trip"]
    assert client.get("/conversations", headers={"Authorization": "Bearer guess"}).status_code == 401
    missing = client.get("/conversations/missing/messages", headers=BOB)
    assert (missing.status_code, missing.json()["error"]) == (404, "SessionNotFound")


def test_each_user_has_their_own_conversations():
    with serve(model="plain") as (client, _):
        check_users(client)


def test_the_same_on_postgresql(postgres):
    with serve(postgres, model="plain") as (client, _):
        check_users(client)


def test_an_answer_arrives_while_it_is_written_and_survives_the_client():
    with serve() as (client, _):
        with client.stream("POST", "/conversations/trip/messages", json={"text": "Coat?"}, headers=ANN) as response:
            assert next(response.iter_text()) == "It "
        pathlib.Path("continue").touch()  # after the client has closed the connection
        wait_until(lambda: ("assistant", "It rains.", "completed") in read_texts(client, ANN))


def test_a_stopping_server_finishes_an_answer_whose_client_is_gone():
    with serve() as (client, process):
        with client.stream("POST", "/conversations/trip/messages", json={"text": "Coat?"}, headers=ANN) as response:
            assert next(response.iter_text()) == "It "
        process.send_signal(signal.SIGTERM)
        pathlib.Path("continue").touch()
        process.wait(60)
    with serve() as (client, _):
        assert read_texts(client, ANN)[-1] == ("assistant", "It rains.", "completed")


def test_a_second_request_waits_and_a_repeated_one_is_not_answered_again():
    key = {"Idempotency-Key": "question-1"}
    url = "/conversations/trip/messages"
    with serve() as (client, _):
        with client.stream("POST", url, json={"text": "Coat?"}, headers=ANN | key) as response:
            texts = response.iter_text()
            assert next(texts) == "It "
            repetition = client.post(url, json={"text": "Coat?"}, headers=ANN | key)
            assert (repetition.status_code, repetition.json()["error"]) == (409, "TurnExists")
            busy = ask(client, "And boots?", ANN)
            assert (busy.status_code, busy.json()["error"]) == (409, "SessionBusy")
            pathlib.Path("continue").touch()
            assert list(texts) == ["rains."]
        assert ask(client, "And boots?", ANN).text == "It rains."
        assert len(read_texts(client, ANN)) == 4


def test_a_killed_server_keeps_the_question_and_the_text_so_far():
    with (
        serve() as (client, process),
        client.stream("POST", "/conversations/trip/messages", json={"text": "Coat?"}, headers=ANN) as response,
    ):
        assert next(response.iter_text()) == "It "
        wait_until(lambda: [text for _, text, _ in read_texts(client, ANN)] == ["Coat?", "It "])
        process.kill()
    with serve() as (client, _):
        assert read_texts(client, ANN) == [("user", "Coat?", "completed"), ("assistant", "It ", "interrupted")]
        pathlib.Path("continue").touch()
        assert ask(client, "Again?", ANN).text == "It rains."


def test_a_failing_model_ends_the_response_and_keeps_the_text():
    with serve(model="fails") as (client, _):
        assert ask(client, "Coat?", ANN).text == "It "
        wait_until(lambda: read_texts(client, ANN)[-1] == ("assistant", "It ", "error"))
    with recollect.open("app.db", owner="ann") as store:
        assert [turn.status for turn in store.session("trip").turns.list()] == ["failed"]
