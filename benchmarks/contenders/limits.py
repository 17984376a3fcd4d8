"""The limits: one table and nothing else, and a file with a line for each message."""

from __future__ import annotations

import glob
import json
import os

from contenders.contender import Contender


class RawApsw(Contender):
    """apsw on one table with the JSON of each message."""

    durability = "WAL, synchronous=FULL"

    async def open(self, place):
        import apsw

        self.connection = apsw.Connection(place)
        self.connection.set_busy_timeout(30_000)
        self.connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS messages (session TEXT, position INTEGER, body TEXT, "
            "PRIMARY KEY (session, position)) WITHOUT ROWID"
        )
        self.counts = {}

    async def close(self):
        self.connection.close()

    async def append(self, session, turn):
        position = self.counts.get(session, 0)
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        for message in turn:
            execute("INSERT INTO messages VALUES (?, ?, ?)", (session, position, json.dumps(message)))
            position += 1
        execute("COMMIT")
        self.counts[session] = position

    async def load(self, session):
        rows = self.connection.execute("SELECT body FROM messages WHERE session = ? ORDER BY position", (session,))
        return len([json.loads(body) for (body,) in rows])

    async def last(self, session, count):
        query = "SELECT body FROM messages WHERE session = ? ORDER BY position DESC LIMIT ?"
        return len([json.loads(body) for (body,) in self.connection.execute(query, (session, count))])


class JsonLines(Contender):
    """A file for each conversation, a line for each message, and fsync."""

    durability = "fsync"

    async def open(self, place):
        self.folder = place + ".jsonl"
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
            return len([json.loads(line) for line in file])

    async def last(self, session, count):
        with open(self.path(session), "rb") as file:
            return len([json.loads(line) for line in file.readlines()[-count:]])

    async def list(self, count):
        found = sorted(glob.glob(f"{self.folder}/*"), key=os.path.getmtime, reverse=True)
        return len(found[:count])


class RawPsycopg(Contender):
    """psycopg 3 on one table."""

    durability = "fsync and synchronous_commit on"

    async def open(self, place):
        import psycopg

        self.connection = psycopg.connect(place, autocommit=True)
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS raw (session text, position integer, body text, "
            "PRIMARY KEY (session, position))"
        )
        self.counts = {}

    async def close(self):
        self.connection.close()

    async def append(self, session, turn):
        first = self.counts.get(session, 0)
        rows = [(session, first + n, json.dumps(message)) for n, message in enumerate(turn)]
        with self.connection.transaction(), self.connection.cursor() as cursor:
            cursor.executemany("INSERT INTO raw VALUES (%s, %s, %s)", rows)
        self.counts[session] = first + len(turn)

    async def load(self, session):
        query = "SELECT body FROM raw WHERE session = %s ORDER BY position"
        return len([json.loads(body) for (body,) in self.connection.execute(query, (session,)).fetchall()])

    async def last(self, session, count):
        query = "SELECT body FROM raw WHERE session = %s ORDER BY position DESC LIMIT %s"
        return len([json.loads(body) for (body,) in self.connection.execute(query, (session, count)).fetchall()])
