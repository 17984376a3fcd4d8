"""Behind PgBouncer in transaction mode, where a client has a server connection for one transaction only."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
from urllib.parse import urlsplit

import psycopg
import pytest

import recollect
from postgres_server import NOBODY, free_port
from recollect.engine.postgres.errors import translate_error

BOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
pytestmark = pytest.mark.skipif(BOUNCER is None, reason="pgbouncer is not installed")


def user_message(text):
    return {"role": "user", "content": text}


@pytest.fixture
def bouncer(postgres, tmp_path):
    parts = urlsplit(postgres)
    port = free_port()
    (tmp_path / "users.txt").write_text('"plain" ""\n')
    (tmp_path / "bouncer.ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={parts.port}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {tmp_path}/users.txt\n"
        "pool_mode = transaction\ndefault_pool_size = 2\n"
    )
    user_options = ["-u", NOBODY] if os.geteuid() == 0 else []
    if user_options:
        for path in (tmp_path, *tmp_path.parents[:3]):
            os.chmod(path, 0o755)
    process = subprocess.Popen(
        [str(BOUNCER), "-q", *user_options, str(tmp_path / "bouncer.ini")], stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
    yield parts._replace(netloc=f"plain@127.0.0.1:{port}").geturl()
    process.terminate()
    process.wait(60)
    process.stderr.close()


def test_many_stores_share_two_connections(bouncer):
    url = f"{bouncer}?prepare=off"
    stores = [recollect.open(url, owner=owner) for owner in ("", "ann", "bob", "eve")]
    for number in range(5):
        for store in stores:
            store.session("a").append(user_message(f"{number}"))
    for store in stores:
        assert [message.text for message in store.session("a").messages()] == [str(n) for n in range(5)]
        store.close()


def test_tasks_write_through_a_pooler(bouncer):
    async def write(store, number):
        session = await store.session(f"s{number % 7}")
        async with session.turn("q", wait=120) as turn:
            await turn.add({"role": "assistant", "content": "r"})

    async def write_all():
        async with recollect.open_async(f"{bouncer}?prepare=off", owner="ann") as store:
            await asyncio.gather(*(write(store, number) for number in range(28)))
            for number in range(7):
                assert (await store.session(f"s{number}")).message_count == 8

    asyncio.run(write_all())


def test_watch_listens_on_the_server_behind_the_pooler(bouncer, postgres):
    with recollect.open(f"{bouncer}?prepare=off&listen=127.0.0.1:{urlsplit(postgres).port}") as store:
        session = store.session("a")
        with store.watch("a", timeout=60) as watch:
            session.append(user_message("x"))
            assert next(watch) == ("a", session.revision)


def test_a_pooler_without_prepare_off_is_named_in_the_error(bouncer):
    """Newer versions of PgBouncer track prepared statements; with them there is no error."""
    clients = [recollect.open(bouncer) for _ in range(3)]
    message = None
    try:
        for number in range(40):
            clients[number % 3].session(f"s{number % 5}").append(user_message("x"))
    except recollect.StoreUnavailable as error:
        message = str(error)
    for client in clients:
        client.close()
    assert message is None or ("prepare=off" in message and "report" not in message)


def test_errors_of_prepared_statements_advise_prepare_off():
    for error in (psycopg.errors.DuplicatePreparedStatement(), psycopg.errors.InvalidSqlStatementName()):
        store_error = translate_error(error, "postgresql://db.example.com/chats", 5)
        assert isinstance(store_error, recollect.StoreUnavailable)
        assert "prepare=off" in str(store_error)
