"""The limits: programs that only store and load messages, in one table or in a file with one line per message."""

from __future__ import annotations

import glob
import json
import os

from contenders.contender import Contender, comparable_openai_message


class Limit(Contender):
    """The base class of the limits, which store and return the JSON of a message."""

    def comparable(self, messages):
        return [comparable_openai_message(message) for message in messages]


class RawApsw(Limit):
    """apsw on one table with the JSON of each message, one transaction per turn.

    WITHOUT ROWID is as fast and 14% larger, because such a table moves rows of this size to overflow pages.
    """

    durability = "WAL, synchronous=FULL"

    async def open(self, location):
        import apsw

        self.connection = apsw.Connection(location)
        self.connection.set_busy_timeout(30_000)
        self.connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS messages (session TEXT, position INTEGER, body TEXT, "
            "UNIQUE (session, position))"
        )
        self.counts = {}

    async def close(self):
        self.connection.close()

    def count(self, session):
        if session not in self.counts:
            query = "SELECT coalesce(max(position) + 1, 0) FROM messages WHERE session = ?"
            self.counts[session] = self.connection.execute(query, (session,)).fetchone()[0]
        return self.counts[session]

    async def append(self, session, turn):
        position = self.count(session)
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        for message in turn:
            execute("INSERT INTO messages VALUES (?, ?, ?)", (session, position, json.dumps(message)))
            position += 1
        execute("COMMIT")
        self.counts[session] = position

    async def load(self, session):
        rows = self.connection.execute("SELECT body FROM messages WHERE session = ? ORDER BY position", (session,))
        return [json.loads(body) for (body,) in rows]

    async def last(self, session, count):
        query = "SELECT body FROM messages WHERE session = ? ORDER BY position DESC LIMIT ?"
        return [json.loads(body) for (body,) in self.connection.execute(query, (session, count))][::-1]


class JsonLines(Limit):
    """One file per conversation, one line per message, and fsync per turn."""

    durability = "fsync of the file"
    tasks = "one task at a time"
    lists = True

    async def open(self, location):
        self.folder = location + ".jsonl"
        os.makedirs(self.folder, exist_ok=True)
        self.files = {}

    async def close(self):
        for file in self.files.values():
            file.close()

    def path(self, session):
        return os.path.join(self.folder, session.replace("/", "_"))

    async def append(self, session, turn):
        file = self.files.get(session)
        if file is None:
            file = self.files[session] = open(self.path(session), "ab", buffering=0)  # noqa: SIM115
        file.write("".join(json.dumps(message) + "\n" for message in turn).encode())
        os.fsync(file.fileno())

    async def load(self, session):
        with open(self.path(session), "rb") as file:
            return [json.loads(line) for line in file]

    async def last(self, session, count):
        with open(self.path(session), "rb") as file:
            return [json.loads(line) for line in file.readlines()[-count:]]

    async def list(self, count):
        paths = sorted(glob.glob(f"{self.folder}/*"), key=os.path.getmtime, reverse=True)
        return paths[:count]


TABLE = "CREATE TABLE IF NOT EXISTS raw (session text, position integer, body text, PRIMARY KEY (session, position))"


class RawPsycopg(Limit):
    """psycopg 3 on one table, one transaction per turn."""

    durability = "fsync and synchronous_commit on"

    async def open(self, location):
        import psycopg

        self.connection = psycopg.connect(location, autocommit=True)
        self.connection.execute(TABLE)
        self.counts = {}

    async def close(self):
        self.connection.close()

    def count(self, session):
        if session not in self.counts:
            query = "SELECT coalesce(max(position) + 1, 0) FROM raw WHERE session = %s"
            self.counts[session] = self.connection.execute(query, (session,)).fetchone()[0]
        return self.counts[session]

    async def append(self, session, turn):
        first = self.count(session)
        rows = [(session, first + n, json.dumps(message)) for n, message in enumerate(turn)]
        with self.connection.transaction(), self.connection.cursor() as cursor:
            cursor.executemany("INSERT INTO raw VALUES (%s, %s, %s)", rows)
        self.counts[session] = first + len(turn)

    async def load(self, session):
        query = "SELECT body FROM raw WHERE session = %s ORDER BY position"
        return [json.loads(body) for (body,) in self.connection.execute(query, (session,)).fetchall()]

    async def last(self, session, count):
        query = "SELECT body FROM raw WHERE session = %s ORDER BY position DESC LIMIT %s"
        rows = self.connection.execute(query, (session, count)).fetchall()
        return [json.loads(body) for (body,) in rows[::-1]]


class RawAsyncpg(Limit):
    """asyncpg on the same table, with a pool: the rate of the server with concurrent writers.

    Its executemany() is one transaction.
    """

    durability = "fsync and synchronous_commit on"
    tasks = "a pool of 16 connections"

    async def open(self, location):
        import asyncpg

        self.pool = await asyncpg.create_pool(location.partition("?")[0], min_size=1, max_size=16)
        await self.pool.execute(TABLE)
        self.counts = {}

    async def close(self):
        await self.pool.close()

    async def count(self, session):
        if session not in self.counts:
            query = "SELECT coalesce(max(position) + 1, 0) FROM raw WHERE session = $1"
            self.counts[session] = await self.pool.fetchval(query, session)
        return self.counts[session]

    async def append(self, session, turn):
        first = await self.count(session)
        rows = [(session, first + n, json.dumps(message)) for n, message in enumerate(turn)]
        await self.pool.executemany("INSERT INTO raw VALUES ($1, $2, $3)", rows)
        self.counts[session] = first + len(turn)

    async def load(self, session):
        rows = await self.pool.fetch("SELECT body FROM raw WHERE session = $1 ORDER BY position", session)
        return [json.loads(row[0]) for row in rows]

    async def last(self, session, count):
        query = "SELECT body FROM raw WHERE session = $1 ORDER BY position DESC LIMIT $2"
        return [json.loads(row[0]) for row in (await self.pool.fetch(query, session, count))[::-1]]
