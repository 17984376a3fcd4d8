"""The gateway half of the fake Discord: sessions that can be resumed, heartbeats, and every way to lose a connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

from aiohttp import WSMsgType, web

if TYPE_CHECKING:
    from fake_discord import FakeDiscord

DISPATCH, HEARTBEAT, IDENTIFY, RESUME, RECONNECT, INVALID, HELLO, ACK = 0, 1, 2, 6, 7, 9, 10, 11
MESSAGE_CONTENT = 1 << 15


class Session:
    """What a client has been told, so that it can be told again what it missed."""

    def __init__(self, id: str, intents: int) -> None:
        self.id = id
        self.intents = intents
        self.sequence = 0
        self.told: list[dict[str, Any]] = []
        self.socket: web.WebSocketResponse | None = None


class Gateway:
    def __init__(self, fake: FakeDiscord) -> None:
        self.fake = fake
        self.sessions: dict[str, Session] = {}
        self.identified: list[dict[str, Any]] = []
        self.resumed: list[dict[str, Any]] = []
        self.heartbeats = 0
        self.interval = 41_250
        self.content_allowed = True
        self.refuse_with: int | None = None
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
                    session = await self._heard(socket, json.loads(message.data), session)
        finally:
            if session is not None and session.socket is socket:
                session.socket = None
        return socket

    async def _heard(
        self, socket: web.WebSocketResponse, said: dict[str, Any], session: Session | None
    ) -> Session | None:
        match said["op"]:
            case 1:
                self.heartbeats += 1
                await _send(socket, {"op": ACK})
            case 2:
                return await self._identify(socket, said["d"])
            case 6:
                return await self._resume(socket, said["d"])
            case _:
                pass
        return session

    async def _identify(self, socket: web.WebSocketResponse, said: dict[str, Any]) -> Session | None:
        self.identified.append(said)
        code = self.refuse_with
        if said["token"] != self.fake.token:
            code = 4004
        elif said["intents"] & MESSAGE_CONTENT and not self.content_allowed:
            code = 4014
        if code is not None:
            await socket.close(code=code, message=b"refused")
            return None
        session = Session(f"session-{len(self.identified)}", said["intents"])
        self.sessions = {session.id: session}
        session.socket = socket
        ready = {
            "v": 10, "user": self.fake.users[900], "session_id": session.id, "application": {"id": "900", "flags": 0},
            "resume_gateway_url": self.fake.origin.replace("http", "ws") + "/gateway",
            "guilds": [{"id": str(guild), "unavailable": True} for guild in self.fake.guilds],
        }  # fmt: skip
        await self._tell(session, "READY", ready)
        for guild in self.fake.guilds:
            await self._tell(session, "GUILD_CREATE", {**self.fake.guild_data(guild), "unavailable": False})
        return session

    async def _resume(self, socket: web.WebSocketResponse, said: dict[str, Any]) -> Session | None:
        self.resumed.append(said)
        session = self.sessions.get(said["session_id"])
        if session is None:
            await _send(socket, {"op": INVALID, "d": False})
            return None
        for missed in [event for event in session.told if event["s"] > (said["seq"] or 0)]:
            await _send(socket, missed)
        session.socket = socket
        await self._tell(session, "RESUMED", {})
        return session

    def dispatch(self, event: str, data: Any) -> None:
        """Tell every session of an event; one whose connection is lost hears of it when it resumes."""
        for session in self.sessions.values():
            payload = self._kept(session, event, json.loads(json.dumps(data)))
            if session.socket is not None:
                self._later(_send(session.socket, payload))

    def raw(self, text: str) -> None:
        """Send a text as it is."""
        for session in self.sessions.values():
            if session.socket is not None:
                self._later(session.socket.send_str(text))

    def _later(self, sending: Any) -> None:
        async def quietly() -> None:
            with contextlib.suppress(ConnectionError, RuntimeError):
                await sending

        task = asyncio.get_running_loop().create_task(quietly())
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def _kept(self, session: Session, event: str, data: Any) -> dict[str, Any]:
        session.sequence += 1
        payload = {"op": DISPATCH, "t": event, "s": session.sequence, "d": data}
        session.told.append(payload)
        return payload

    async def _tell(self, session: Session, event: str, data: Any) -> None:
        payload = self._kept(session, event, data)
        if session.socket is not None:
            await _send(session.socket, payload)

    async def drop(self, code: int = 4000) -> None:
        """Lose the connection; the session can be resumed."""
        for session in self.sessions.values():
            if session.socket is not None:
                socket, session.socket = session.socket, None
                await socket.close(code=code)

    async def ask_to_reconnect(self) -> None:
        for session in self.sessions.values():
            if session.socket is not None:
                await _send(session.socket, {"op": RECONNECT, "d": None})

    async def invalidate(self) -> None:
        """Forget the session: the client must identify anew."""
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
