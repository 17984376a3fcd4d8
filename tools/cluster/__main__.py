"""Kill the leader of a real cluster under load, again and again, and count what was lost. Run with scripts/cluster."""

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
HELD = 1.0


@dataclass
class Kill:
    """One kill and what came of it."""

    number: int
    kind: str
    node: str
    leader: str
    pause: float


def main() -> int:
    """Build the cluster, run the load, kill leaders, compare, and print it all."""
    arguments = _arguments()
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # each lost connection would be a line
    cluster = Cluster(synchronous=not arguments.asynchronous)
    try:
        _say(f"Starting etcd and three servers under Patroni, in {cluster.folder}")
        cluster.start()
        load = Load(cluster.url(connect_timeout="2"), writers=arguments.writers, timeout=arguments.timeout)
        load.start()
        try:
            kinds = itertools.islice(_kinds(arguments.kind), arguments.kills)
            kills = [_kill(cluster, load, number, kind) for number, kind in enumerate(kinds, 1)]
        finally:
            load.stop()
        cluster.wait_whole()
        outcomes = {node.name: compare(node.url(), load.ledgers) for node in _caught_up(cluster)}
        _report(load, kills, outcomes, cluster.leader().name)
    except (ClusterError, KeyboardInterrupt) as error:
        _say(f"Stopped: {error or 'interrupted'}")
        return 1
    finally:
        if arguments.keep:
            _say(f"Left running: {cluster.url()} in {cluster.folder}")
        else:
            cluster.remove()
    good = all(outcome.good for outcome in outcomes.values())
    return 0 if good or arguments.asynchronous else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/cluster", description=__doc__)
    parser.add_argument("--kills", type=int, default=5, help="how often the leader is killed (5)")
    kind = "what is killed: the node with its Patroni, the same after a second in which nothing reached its replicas "
    kind += "(cut), the server alone, or by turns (mixed)"
    parser.add_argument("--kind", choices=["mixed", *KINDS], default="mixed", help=kind)
    writers = "tasks that save turns; half and a quarter as many more append with a key and from threads (8)"
    parser.add_argument("--writers", type=int, default=8, help=writers)
    parser.add_argument("--timeout", type=float, default=90.0, help="seconds that an operation may wait (90)")
    parser.add_argument("--asynchronous", action="store_true", help="replicate without waiting, to see what that loses")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running at the end")
    return parser.parse_args()


def _kinds(kind: str) -> itertools.cycle[str]:
    return itertools.cycle(KINDS if kind == "mixed" else (kind,))


def _kill(cluster: Cluster, load: Load, number: int, kind: str) -> Kill:
    """Kill the leader at some moment, wait until writes go on by themselves, and bring the node back."""
    cluster.wait_whole()
    time.sleep(random.uniform(2, 4))
    leader = cluster.leader()
    load.clock.restart()
    if kind == "cut":
        leader.hold(HELD)
    leader.crash() if kind == "server" else leader.kill()
    dead = time.monotonic()
    wait_for("a write after the kill", lambda: load.clock.last > dead + 0.5)
    pause = load.clock.longest
    after = cluster.leader()
    _say(f"{number}. {kind} {leader.name} killed, {after.name} leads after {pause:.1f} s; {load.acknowledged:,} turns")
    if not leader.up:
        leader.start()
    return Kill(number, kind, leader.name, after.name, pause)


def _caught_up(cluster: Cluster) -> list[Node]:
    """Wait until every replica has what the leader has."""
    with psycopg.connect(cluster.leader().url()) as connection:
        row = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
    for node in cluster.nodes:
        wait_for(f"{node.name} catching up", lambda node=node: _replayed(node, row[0] if row else ""))
    return cluster.nodes


def _replayed(node: Node, place: str) -> bool:
    query = "SELECT NOT pg_is_in_recovery() OR pg_last_wal_replay_lsn() >= %s::pg_lsn"
    with psycopg.connect(node.url()) as connection:
        row = connection.execute(query, (place,)).fetchone()
    return bool(row and row[0])


def _report(load: Load, kills: list[Kill], outcomes: dict[str, Outcome], leader: str) -> None:
    _say("\n| kill | what | who | leads then | pause, s |\n|---|---|---|---|---|")
    for kill in kills:
        _say(f"| {kill.number} | {kill.kind} | {kill.node} | {kill.leader} | {kill.pause:.1f} |")
    _say("\n| read from | kills | acknowledged | lost | doubled | out of order | damaged | not told | of it stored |")
    _say("|---|---|---|---|---|---|---|---|---|")
    for name, found in outcomes.items():
        what = f"{name}, the leader" if name == leader else name
        numbers = (
            len(kills), found.acknowledged, found.lost, found.doubled, found.disordered, found.damaged, found.unknown,
            found.stored,
        )  # fmt: skip
        _say(f"| {what} | {' | '.join(f'{number:,}' for number in numbers)} |")
    _say(f"\nLongest pause: {max((kill.pause for kill in kills), default=0.0):.1f} s")
    for ledger in load.ledgers:
        for error, count in ledger.errors.items():
            _say(f"{ledger.name} saw {count} x {error}")


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
