"""The gateway of the fake Discord: resumable sessions, heartbeats, and several ways to lose a connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

from aiohttp import WSMsgType, web

if TYPE_CHECKING:
    from fake_discord import FakeDiscord

DISPATCH, HEARTBEAT, IDENTIFY, RESUME, RECONNECT, INVALID, HELLO, ACK = 0, 1, 2, 6, 7, 9, 10, 11
MESSAGE_CONTENT = 1 << 15  # bit of the gateway intents, defined by Discord


class Session:
    """The events that a client has received, so that a resume can repeat the missed ones."""

    def __init__(self, id: str, intents: int) -> None:
        self.id = id
        self.intents = intents
        self.sequence = 0
        self.events: list[dict[str, Any]] = []
        self.socket: web.WebSocketResponse | None = None


class Gateway:
    def __init__(self, fake: FakeDiscord) -> None:
        self.fake = fake
        self.sessions: dict[str, Session] = {}
        self.identifications: list[dict[str, Any]] = []
        self.resumes: list[dict[str, Any]] = []
        self.heartbeats = 0
        self.interval = 41_250
        self.content_allowed = True
        self.close_code: int | None = None
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def connected(self) -> bool:
        return any(session.socket is not None for session in self.sessions.values())

    async def connect(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await _send(socket, {"op": HELLO, "d": {"heartbeat_interval": self.interval}})
        session: Session | None = None
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    session = await self._handle(socket, json.loads(message.data), session)
        finally:
            if session is not None and session.socket is socket:
                session.socket = None
        return socket

    async def _handle(
        self, socket: web.WebSocketResponse, payload: dict[str, Any], session: Session | None
    ) -> Session | None:
        match payload["op"]:
            case 1:
                self.heartbeats += 1
                await _send(socket, {"op": ACK})
            case 2:
                return await self._identify(socket, payload["d"])
            case 6:
                return await self._resume(socket, payload["d"])
            case _:
                pass
        return session

    async def _identify(self, socket: web.WebSocketResponse, data: dict[str, Any]) -> Session | None:
        self.identifications.append(data)
        code = self.close_code
        if data["token"] != self.fake.token:
            code = 4004
        elif data["intents"] & MESSAGE_CONTENT and not self.content_allowed:
            code = 4014
        if code is not None:
            await socket.close(code=code, message=b"refused")
            return None
        session = Session(f"session-{len(self.identifications)}", data["intents"])
        self.sessions = {session.id: session}
        session.socket = socket
        ready = {
            "v": 10, "user": self.fake.users[900], "session_id": session.id, "application": {"id": "900", "flags": 0},
            "resume_gateway_url": self.fake.origin.replace("http", "ws") + "/gateway",
            "guilds": [{"id": str(guild), "unavailable": True} for guild in self.fake.guilds],
        }  # fmt: skip
        await self._send_event(session, "READY", ready)
        for guild in self.fake.guilds:
            await self._send_event(session, "GUILD_CREATE", {**self.fake.guild_data(guild), "unavailable": False})
        return session

    async def _resume(self, socket: web.WebSocketResponse, data: dict[str, Any]) -> Session | None:
        self.resumes.append(data)
        session = self.sessions.get(data["session_id"])
        if session is None:
            await _send(socket, {"op": INVALID, "d": False})
            return None
        for missed_event in [event for event in session.events if event["s"] > (data["seq"] or 0)]:
            await _send(socket, missed_event)
        session.socket = socket
        await self._send_event(session, "RESUMED", {})
        return session

    def dispatch(self, event: str, data: Any) -> None:
        """Send an event to every session. A session without a connection gets it when it resumes."""
        for session in self.sessions.values():
            payload = self._record(session, event, json.loads(json.dumps(data)))
            if session.socket is not None:
                self._send_later(_send(session.socket, payload))

    def raw(self, text: str) -> None:
        """Send a text frame unchanged."""
        for session in self.sessions.values():
            if session.socket is not None:
                self._send_later(session.socket.send_str(text))

    def _send_later(self, coroutine: Any) -> None:
        async def send() -> None:
            with contextlib.suppress(ConnectionError, RuntimeError):
                await coroutine

        task = asyncio.get_running_loop().create_task(send())
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def _record(self, session: Session, event: str, data: Any) -> dict[str, Any]:
        session.sequence += 1
        payload = {"op": DISPATCH, "t": event, "s": session.sequence, "d": data}
        session.events.append(payload)
        return payload

    async def _send_event(self, session: Session, event: str, data: Any) -> None:
        payload = self._record(session, event, data)
        if session.socket is not None:
            await _send(session.socket, payload)

    async def drop(self, code: int = 4000) -> None:
        """Close the connection; the session can be resumed."""
        for session in self.sessions.values():
            if session.socket is not None:
                socket, session.socket = session.socket, None
                await socket.close(code=code)

    async def ask_to_reconnect(self) -> None:
        for session in self.sessions.values():
            if session.socket is not None:
                await _send(session.socket, {"op": RECONNECT, "d": None})

    async def invalidate(self) -> None:
        """Forget the session: the client must identify again."""
        sessions, self.sessions = self.sessions, {}
        for session in sessions.values():
            if session.socket is not None:
                await _send(session.socket, {"op": INVALID, "d": False})

    async def close(self) -> None:
        await self.drop(1001)
        if self._sending:
            await asyncio.wait(self._sending)


async def _send(socket: web.WebSocketResponse, payload: dict[str, Any]) -> None:
    await socket.send_str(json.dumps(payload))
