"""Start a PostgreSQL cluster on loopback, kill its leader repeatedly under load, and count lost and damaged turns."""

from __future__ import annotations

import argparse
import itertools
import logging
import random
import sys
import time
from dataclasses import dataclass

import psycopg
from load import Load, Outcome, compare
from nodes import Cluster, ClusterError, Node, wait_for

KINDS = ("node", "cut", "server")
CUT_SECONDS = 1.0  # seconds without replication before a `cut` kill. The load writes hundreds of turns in it.


@dataclass
class Kill:
    """One kill, the new leader, and the time without acknowledged writes."""

    number: int
    kind: str
    node: str
    leader: str
    pause: float


def main() -> int:
    """Start the cluster and the load, kill leaders, compare and print; return the exit status."""
    arguments = _arguments()
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # the pool would log every lost connection
    cluster = Cluster(synchronous=not arguments.asynchronous)
    try:
        _print(f"Starting etcd and three PostgreSQL servers under Patroni in {cluster.folder}")
        cluster.start()
        load = Load(cluster.url(connect_timeout="2"), writers=arguments.writers, timeout=arguments.timeout)
        load.start()
        try:
            kinds = itertools.islice(_kinds(arguments.kind), arguments.kills)
            kills = [_kill(cluster, load, number, kind) for number, kind in enumerate(kinds, 1)]
        finally:
            load.stop()
        cluster.wait_whole()
        outcomes = {node.name: compare(node.url(), load.ledgers) for node in _wait_for_replicas(cluster)}
        _report(load, kills, outcomes, cluster.leader().name)
    except (ClusterError, KeyboardInterrupt) as error:
        _print(f"Stopped: {error or 'interrupted'}")
        return 1
    finally:
        if arguments.keep:
            _print(f"The cluster is still running: {cluster.url()} in {cluster.folder}")
        else:
            cluster.remove()
    good = all(outcome.good for outcome in outcomes.values())
    return 0 if good or arguments.asynchronous else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/cluster", description=__doc__)
    parser.add_argument("--kills", type=int, default=5, metavar="N", help="number of kills of the leader (default: 5)")
    kind = "node: PostgreSQL and Patroni; cut: the same, after one second without replication; "
    kind += "server: PostgreSQL alone, which Patroni restarts; mixed: all three in turn (default: mixed)"
    parser.add_argument("--kind", choices=["mixed", *KINDS], default="mixed", help=kind)
    writers = (
        "tasks that save complete turns (default: 8); half as many tasks append with a key, and a quarter as many "
    )
    writers += "threads append through the sync store"
    parser.add_argument("--writers", type=int, default=8, metavar="N", help=writers)
    timeout = "timeout of each operation of a store (default: 90)"
    parser.add_argument("--timeout", type=float, default=90.0, metavar="SECONDS", help=timeout)
    parser.add_argument("--asynchronous", action="store_true", help="replicate asynchronously, which can lose turns")
    parser.add_argument("--keep", action="store_true", help="keep the cluster running at the end")
    return parser.parse_args()


def _kinds(kind: str) -> itertools.cycle[str]:
    return itertools.cycle(KINDS if kind == "mixed" else (kind,))


def _kill(cluster: Cluster, load: Load, number: int, kind: str) -> Kill:
    """Kill the leader at a random time, wait until writes continue, and start the node again."""
    cluster.wait_whole()
    time.sleep(random.uniform(2, 4))
    leader = cluster.leader()
    load.clock.restart()
    if kind == "cut":
        leader.hold(CUT_SECONDS)
    leader.crash() if kind == "server" else leader.kill()
    kill_time = time.monotonic()
    wait_for("a write after the kill", lambda: load.clock.last > kill_time + 0.5)
    pause = load.clock.longest
    new_leader = cluster.leader()
    _print(
        f"{number}. {kind} kill of {leader.name}: {new_leader.name} leads, longest pause {pause:.1f} s, "
        f"{load.acknowledged_count:,} turns acknowledged"
    )
    if not leader.up:
        leader.start()
    return Kill(number, kind, leader.name, new_leader.name, pause)


def _wait_for_replicas(cluster: Cluster) -> list[Node]:
    """Wait until every replica has replayed the WAL of the leader, and return the nodes."""
    with psycopg.connect(cluster.leader().url()) as connection:
        row = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
    for node in cluster.nodes:
        wait_for(f"{node.name} catching up", lambda node=node: _has_replayed(node, row[0] if row else ""))
    return cluster.nodes


def _has_replayed(node: Node, lsn: str) -> bool:
    query = "SELECT NOT pg_is_in_recovery() OR pg_last_wal_replay_lsn() >= %s::pg_lsn"
    with psycopg.connect(node.url()) as connection:
        row = connection.execute(query, (lsn,)).fetchone()
    return bool(row and row[0])


def _report(load: Load, kills: list[Kill], outcomes: dict[str, Outcome], leader: str) -> None:
    _print("\n| kill | kind | killed node | new leader | pause, s |\n|---|---|---|---|---|")
    for kill in kills:
        _print(f"| {kill.number} | {kill.kind} | {kill.node} | {kill.leader} | {kill.pause:.1f} |")
    columns = "server | kills | acknowledged | lost | duplicated | out of order | damaged | unknown | unknown, stored"
    _print(f"\n| {columns} |")
    _print("|---|---|---|---|---|---|---|---|---|")
    for name, outcome in outcomes.items():
        label = f"{name}, the leader" if name == leader else name
        numbers = (
            len(kills), outcome.acknowledged_count, outcome.lost_count, outcome.duplicate_count,
            outcome.disorder_count, outcome.damaged, outcome.unknown, outcome.stored_count,
        )  # fmt: skip
        _print(f"| {label} | {' | '.join(f'{number:,}' for number in numbers)} |")
    _print(f"\nLongest pause: {max((kill.pause for kill in kills), default=0.0):.1f} s")
    for ledger in load.ledgers:
        for error, count in ledger.errors.items():
            _print(f"{ledger.name}: {count} x {error}")


def _print(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
