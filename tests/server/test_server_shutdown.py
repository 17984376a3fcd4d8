"""The shutdown of a server process: every event stream ends cleanly and soon."""

from __future__ import annotations

import signal
import threading
import time

import httpx
import pytest
from server_harness import LIMIT, wait_for


class Listener(threading.Thread):
    """A thread that reads a stream to its end, and records whether it ended cleanly."""

    def __init__(self, server, path, headers):
        super().__init__(daemon=True)
        self.address, self.headers = f"{server.url}{path}", headers
        self.has_data = threading.Event()
        self.clean = None

    def run(self):
        try:
            with httpx.stream("GET", self.address, headers=self.headers, timeout=LIMIT) as response:
                assert response.status_code == 200
                for _ in response.iter_bytes():
                    self.has_data.set()
            self.clean = True
        except httpx.HTTPError as error:
            self.clean = repr(error)


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_event_streams_end_cleanly_when_the_server_stops(start_process, signal_number):
    server = start_process().wait_until_up()
    access = {"Authorization": f"Bearer {server.token}"}
    with server.client() as api:
        for name in ("a", "b"):
            api.put(f"/sessions/{name}")
        response = api.post("/sessions/a/chat", json={"text": "Tell me a story in 500 chapters"})
        assert response.status_code == 202
    paths = [
        "/events",
        "/events?open=a&open=b",
        "/api/v1/changes",
        "/api/v1/sessions/a/events",
        "/api/v1/sessions/b/events",
    ]
    listeners = [Listener(server, path, access) for path in paths for _ in range(3)]
    for listener in listeners:
        listener.start()
    for listener in listeners:
        assert listener.has_data.wait(LIMIT), listener.address
    start = time.monotonic()
    server.end(signal_number)
    seconds = time.monotonic() - start
    wait_for(lambda: not any(listener.is_alive() for listener in listeners), "the streams")
    assert {listener.address: listener.clean for listener in listeners} == {item.address: True for item in listeners}
    assert "Traceback" not in server.remaining_output()
    print(
        f"{len(listeners)} streams open: the server stopped {seconds:.2f} s after {signal.Signals(signal_number).name}"
    )
