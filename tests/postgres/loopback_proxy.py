"""A way to the server that can be cut: at any moment, or at the very COMMIT, before or after the server has seen it."""

from __future__ import annotations

import contextlib
import select
import socket
import threading

COMMIT = b"commit\0"
_LOST = b"SFATAL\0VFATAL\0C08P01\0Mserver conn crashed?\0\0"


class LoopbackProxy:
    """Passes bytes on between clients and a server on loopback.

    `trap` says what happens at the next COMMIT that a client sends: "before" (it never arrives), "after" (it arrives, its
    answer does not), "told" (the same, and the client gets the error of a pooler that has lost its server) or "late" (the
    client is cut off, and it arrives when `release` is called). While `shut`, who connects is cut off at once.
    """

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.trap: str | None = None
        self.shut = False
        self.sprung = threading.Event()
        self._held: list[tuple[socket.socket, bytes]] = []
        self._open: list[socket.socket] = []
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
                if self.shut:
                    client.close()
                    continue
                server = socket.create_connection(self._target)
            except OSError:
                continue
            self._open += [client, server]
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return self._end(client, server)
                    if ready is client and self.trap is not None and COMMIT in data:
                        return self._spring(client, server, data)
                    (server if ready is client else client).sendall(data)
        return self._end(client, server)

    def _spring(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        how, self.trap = self.trap, None
        self.sprung.set()  # before the client can notice anything, and look
        if how == "late":
            self._held.append((server, data))
            client.close()
        elif how in ("after", "told"):
            server.sendall(data)
            answered = b""
            while b"COMMIT" not in answered:  # the server says so when it is on disk
                answered += server.recv(65536)
            if how == "told":
                client.sendall(_message(b"E", _LOST) + _message(b"Z", b"I"))
                while client.recv(65536):  # it hangs up when it has read this
                    pass
            self._end(client, server)
        else:
            self._end(client, server)

    def _end(self, *sockets: socket.socket) -> None:
        for each in sockets:
            each.close()

    def release(self) -> bytes:
        """Let a COMMIT arrive that was held back, and give what the server says to it."""
        server, data = self._held.pop()
        server.sendall(data)
        server.settimeout(10)
        answer = b""
        with contextlib.suppress(TimeoutError):
            while b"Z\0\0\0\5" not in answer:  # ready for the next
                answer += server.recv(65536)
        server.close()
        return answer

    def cut(self) -> None:
        """Cut every connection."""
        opened, self._open = self._open, []
        for each in opened:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed = True
        self._listener.close()
        self.cut()


def _message(kind: bytes, content: bytes) -> bytes:
    """Make a message as the server sends it."""
    return kind + (len(content) + 4).to_bytes(4, "big") + content
