"""Failed logins: limited for each address, logged, and never blocking a correct token."""

from __future__ import annotations

import concurrent.futures
import logging

import httpx
import pytest
from server_harness import TOKEN, cookie_of, log_in

from recollect.server import access, log
from recollect.server.access import FAILURE_BURST, FailedAttempts, client_network
from recollect.server.log import BoundedLog

WRONG = "wrong-token-0123456789-0123456789-0123"


def try_token(server, token, client="127.0.0.1", method="bearer"):
    """Try a token from an address, as a local proxy forwards it, and return the status."""
    headers = {"X-Forwarded-For": client}
    if method == "form":
        return log_in(server, token, Accept="application/json", **headers).status_code
    if method == "cookie":
        value = cookie_of(server) if token == TOKEN else f"recollect-{server.port}=nonce.{token}"
        return httpx.get(f"{server.url}/api/v1/last-session", headers={"Cookie": value, **headers}).status_code
    authorization = {"Authorization": f"Bearer {token}", **headers}
    return httpx.get(f"{server.url}/api/v1/last-session", headers=authorization).status_code


@pytest.mark.parametrize("method", ["bearer", "form", "cookie"])
def test_wrong_tokens_are_limited_and_the_correct_one_always_passes(server, method):
    statuses = [try_token(server, WRONG, method=method) for _ in range(FAILURE_BURST + 5)]
    assert statuses[:FAILURE_BURST] == [401] * FAILURE_BURST
    assert statuses[-1] == 429
    for other_method in ("bearer", "form", "cookie"):
        assert try_token(server, TOKEN, method=other_method) in (200, 204)
    assert try_token(server, WRONG, "203.0.113.9", method) == 401, "another address has a limit of its own"
    response = httpx.get(f"{server.url}/api/v1/info", headers={"Authorization": f"Bearer {WRONG}"})
    assert response.json()["code"] == "too-many-attempts"
    assert 1 <= int(response.headers["retry-after"]) <= 60
    page = log_in(server, WRONG, Accept="text/html")
    assert page.status_code == 429
    assert '<form method="post" action="/login"' in page.text


def test_a_correct_token_passes_while_others_guess(server):
    def attempt(number):
        if number % 3 == 0:
            return "right", try_token(server, TOKEN, method=("bearer", "form")[number % 2])
        return "wrong", try_token(server, f"{WRONG}{number}", method=("bearer", "form", "cookie")[number % 3])

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(attempt, range(240)))
    assert {status for kind, status in answers if kind == "right"} <= {200, 204}
    assert {status for kind, status in answers if kind == "wrong"} == {401, 429}


def test_failures_are_forgotten_with_time(monkeypatch):
    now = [1_000.0]
    monkeypatch.setattr(access.time, "monotonic", lambda: now[0])
    failed = FailedAttempts(BoundedLog())
    assert [failed.add("192.0.2.1", "x") for _ in range(FAILURE_BURST)] == [None] * FAILURE_BURST
    wait = failed.add("192.0.2.1", "x")
    assert wait == 3
    for _ in range(1_000):  # more failures must not lock the address for hours
        failed.add("192.0.2.1", "x")
    now[0] += 3 * wait
    assert failed.add("192.0.2.1", "x") is None


def test_the_table_of_addresses_is_bounded(monkeypatch):
    monkeypatch.setattr(access, "_MAX_ADDRESSES", 10)
    failed = FailedAttempts(BoundedLog())
    for number in range(1_000):
        failed.add(f"192.0.2.{number % 256}.{number}", "x")
    assert len(failed._failures) == 10


def test_addresses_of_one_network_share_a_limit():
    assert client_network("2001:db8::1") == client_network("2001:db8::ffff:1") == "2001:db8::/64"
    assert client_network("2001:db8:0:1::1") != client_network("2001:db8::1")
    assert client_network("::ffff:192.0.2.1") == client_network("192.0.2.1") == "192.0.2.1"
    assert client_network("fe80::1%eth0") == "fe80::/64"
    assert client_network("-") == "-"


def test_only_a_local_proxy_can_set_the_client_address(server, caplog):
    with caplog.at_level(logging.INFO, "recollect.server"):
        try_token(server, WRONG, "198.51.100.1, 203.0.113.7:4711")
        try_token(server, WRONG, "not an address")
    lines = [record.getMessage() for record in caplog.records if "Failed login" in record.getMessage()]
    assert lines == [
        "Failed login from 203.0.113.7: wrong bearer token",
        "Failed login from 127.0.0.1: wrong bearer token",
    ]


def test_failures_cannot_fill_the_log(monkeypatch, caplog):
    now = [1_000.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: now[0])
    failed = FailedAttempts(BoundedLog())
    with caplog.at_level(logging.DEBUG, "recollect.server"):
        for _ in range(500):
            failed.add("192.0.2.1", "x")
        assert len(caplog.records) == 1
        now[0] += log.REPEAT_INTERVAL + 1
        failed.add("192.0.2.1", "x")
        assert caplog.records[-1].getMessage() == "Failed login from 192.0.2.1: x (and 499 more since the last line)"
        caplog.clear()
        for number in range(5_000):
            failed.add(f"10.0.{number // 250}.{number % 250}", "x")
        assert len(caplog.records) < 100
