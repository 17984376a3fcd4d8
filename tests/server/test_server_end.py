"""The end of a server, as a real process that is told to stop: every stream ends whole, and soon."""

from __future__ import annotations

import signal
import threading
import time

import httpx
import pytest
from running import LIMIT, wait_for


class Listener(threading.Thread):
    """Reads a stream to its end, and remembers whether that was a clean one."""

    def __init__(self, server, path, headers):
        super().__init__(daemon=True)
        self.address, self.headers = f"{server.url}{path}", headers
        self.heard = threading.Event()
        self.clean = None

    def run(self):
        try:
            with httpx.stream("GET", self.address, headers=self.headers, timeout=LIMIT) as response:
                assert response.status_code == 200
                for _ in response.iter_bytes():
                    self.heard.set()
            self.clean = True
        except httpx.HTTPError as error:
            self.clean = repr(error)


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_streams_of_page_and_api_end_whole_when_the_server_is_told_to_stop(command, sign):
    server = command().wait_until_up()
    access = {"Authorization": f"Bearer {server.token}"}
    with server.client() as api:
        for name in ("a", "b"):
            api.put(f"/sessions/{name}")
        said = api.post("/sessions/a/chat", json={"text": "Tell me a story in 500 chapters"})
        assert said.status_code == 202
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
        assert listener.heard.wait(LIMIT), listener.address
    began = time.monotonic()
    server.end(sign)
    took = time.monotonic() - began
    wait_for(lambda: not any(listener.is_alive() for listener in listeners), "the streams")
    assert {listener.address: listener.clean for listener in listeners} == {item.address: True for item in listeners}
    assert "Traceback" not in server.rest()
    print(f"{len(listeners)} streams open: the server stopped {took:.2f} s after {signal.Signals(sign).name}")
