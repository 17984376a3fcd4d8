"""A proxy whose connections a test can cut at any time, or at a COMMIT, before or after the server has received it."""

from __future__ import annotations

import contextlib
import select
import socket
import threading

COMMIT = b"commit\0"
_POOLER_ERROR = b"SFATAL\0VFATAL\0C08P01\0Mserver conn crashed?\0\0"


class LoopbackProxy:
    """Forwards bytes between clients and a server on loopback.

    `trap` is the fault at the next COMMIT of a client: "before" (COMMIT never arrives), "after" (it arrives, its reply does
    not), "pooler" (the same, and the client gets the error of a pooler that has lost its server) or "late" (the client is
    disconnected, and COMMIT arrives when release() is called). While `refuses` is set, new connections are closed.
    """

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.trap: str | None = None
        self.refuses = False
        self.trap_event = threading.Event()
        self._delayed_commits: list[tuple[socket.socket, bytes]] = []
        self._open: list[socket.socket] = []
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
                if self.refuses:
                    client.close()
                    continue
                server = socket.create_connection(self._target)
            except OSError:
                continue
            self._open += [client, server]
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return self._close_all(client, server)
                    if ready is client and self.trap is not None and COMMIT in data:
                        return self._run_trap(client, server, data)
                    (server if ready is client else client).sendall(data)
        return self._close_all(client, server)

    def _run_trap(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        trap, self.trap = self.trap, None
        self.trap_event.set()  # before the client can notice the fault
        if trap == "late":
            self._delayed_commits.append((server, data))
            client.close()
        elif trap in ("after", "pooler"):
            server.sendall(data)
            response = b""
            while b"COMMIT" not in response:  # the server replies when the commit is on disk
                response += server.recv(65536)
            if trap == "pooler":
                client.sendall(_message(b"E", _POOLER_ERROR) + _message(b"Z", b"I"))
                while client.recv(65536):  # the client disconnects when it has read the error
                    pass
            self._close_all(client, server)
        else:
            self._close_all(client, server)

    def _close_all(self, *sockets: socket.socket) -> None:
        for connection in sockets:
            connection.close()

    def release(self) -> bytes:
        """Forward a delayed COMMIT and return the reply of the server."""
        server, data = self._delayed_commits.pop()
        server.sendall(data)
        server.settimeout(10)
        response = b""
        with contextlib.suppress(TimeoutError):
            while b"Z\0\0\0\5" not in response:  # ReadyForQuery, idle
                response += server.recv(65536)
        server.close()
        return response

    def cut(self) -> None:
        """Cut every connection."""
        connections, self._open = self._open, []
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed = True
        self._listener.close()
        self.cut()


def _message(kind: bytes, content: bytes) -> bytes:
    """Return a protocol message of the server."""
    return kind + (len(content) + 4).to_bytes(4, "big") + content
