"""Clients that stay while a local cluster is hurt: `make chaos FOR=600`, for so many seconds.

Two idempotent producers, one of a compacted topic, and a group of two consumers, one of them a
static member, of the library that `CLIENTS` names (chaos_clients/kinds.py), live through kills and
freezes of brokers, of one, two or all, with the controller or without it, and through clean
restarts of everything.  Afterwards each of them has to go on, and what was acknowledged is looked
for: nothing may be lost, there twice or out of order, nothing may have been kept from the group,
and of each key the last record has to be there.  No client may have got nothing done for longer
than the faults explain (chaos_stalls.py).  With `--secure` clients log in over TLS, with the rights
that they need and quotas (chaos_secured.py); with `--operations` an administrator works meanwhile
(chaos_administrator.py).  With `--keep` the logs stay.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from tests.integration.chaos_administrator import administrated
from tests.integration.chaos_clients.frame import (
    COMPACTED,
    GOES_ON_S_MAX,
    PARTITIONS,
    PLAIN,
    Client,
    Place,
    Reader,
    Record,
    Records,
    Writer,
)
from tests.integration.chaos_clients.kinds import KINDS
from tests.integration.chaos_clients.librdkafka import as_record
from tests.integration.chaos_secured import SecuredCluster, a_stranger, objects_of_users
from tests.integration.chaos_stalls import READER_S, UNEXPLAINED_S_MAX, Outage, judged
from tests.integration.local_cluster import LocalCluster, committed_messages, wait_for
from tests.integration.machine_share import MachineShare

KEYS = 600
BETWEEN_S = (4.0, 12.0)
QUIET_S = (25.0, 35.0)
QUIET_EACH = 4
"""Of so many pauses one is quiet for so long: whoever is behind has to have caught up by then."""
FROZEN_S = (0.5, 12.0)
"""Some are fenced meanwhile, some are not."""
BEGINS_S_MAX = 120.0
STARTS_S_MAX = 300.0
"""Everything anew; what counts is how long clients waited for it."""
SHOWN_MAX = 3
"""Of each client's failures."""
OBJECTS = """\
apiVersion: plimsoll.dev/v1alpha1
kind: LogCluster
metadata: {name: main}
spec:
  brokers: {count: 3}
  storage: {size: 4Gi}
  config: {replica.lag.time.max.ms: 3000}
---
apiVersion: plimsoll.dev/v1alpha1
kind: Topic
metadata: {name: plain}
spec: {clusterRef: {name: main}, partitions: 6, config: {segment.bytes: 262144}}
---
apiVersion: plimsoll.dev/v1alpha1
kind: Topic
metadata: {name: compacted}
spec:
  clusterRef: {name: main}
  partitions: 6
  config:
    cleanup.policy: compact
    segment.bytes: 65536
    segment.ms: 60000
    min.cleanable.dirty.ratio: 0.05
"""


# --- what is done to the cluster ------------------------------------------------------------------


def kill(cluster: LocalCluster, rng: random.Random, brokers: int) -> None:
    for pid in rng.sample(cluster.broker_pids, brokers):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def freeze(cluster: LocalCluster, rng: random.Random) -> None:
    pid = rng.choice(cluster.broker_pids)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(rng.uniform(*FROZEN_S))
        os.kill(pid, signal.SIGCONT)


def kill_everything(cluster: LocalCluster, _: random.Random) -> None:
    cluster.kill_everything()
    cluster.start(STARTS_S_MAX)


def restart(cluster: LocalCluster, _: random.Random) -> None:
    cluster.stop()
    cluster.start(STARTS_S_MAX)


Fault = Callable[[LocalCluster, random.Random], None]
FAULTS: dict[str, Fault] = {
    "kill a broker": lambda cluster, rng: kill(cluster, rng, 1),
    "kill two brokers": lambda cluster, rng: kill(cluster, rng, 2),
    "kill all brokers": lambda cluster, rng: kill(cluster, rng, 3),
    "freeze a broker": freeze,
    "kill everything": kill_everything,
    "restart everything": restart,
}


# --- what is looked for afterwards ----------------------------------------------------------------


def read_all(cluster: LocalCluster, topic: str) -> Records:
    """Everything that is committed, by partition."""
    found: Records = defaultdict(list)
    login = cluster.login("admin") if isinstance(cluster, SecuredCluster) else {}
    for message in committed_messages(cluster.bootstrap, topic, PARTITIONS, **login):
        found[message.partition() or 0].append(as_record(message))
    return found


def wrong_in_plain(acked: Records, found: Records, seen: dict[int, set[int]]) -> list[str]:
    faults = []
    for index in range(PARTITIONS):
        there = {_number(record): record.offset for record in found[index]}
        lost = [_number(each) for each in acked[index] if not is_there(each, there)]
        numbers = [_number(record) for record in found[index]]
        kept = {*there.values()} - seen[index]
        faults += [f"{PLAIN}-{index}: {len(lost)} lost, such as {lost[0]}"] if lost else []
        faults += [f"{PLAIN}-{index}: some twice"] if len({*numbers}) != len(numbers) else []
        faults += [f"{PLAIN}-{index}: out of order"] if numbers != sorted(numbers) else []
        faults += [f"{PLAIN}-{index}: {len(kept)} kept from the group"] if kept else []
    return faults


def wrong_in_compacted(acked: Records, found: Records) -> list[str]:
    faults = []
    for index in range(PARTITIONS):
        there = {record.key: _number(record) for record in found[index]}  # the last one of each
        last = {record.key: _number(record) for record in sorted(acked[index], key=_number)}
        lost = [key for key, number in last.items() if there.get(key, -1) < number]
        faults += [f"{COMPACTED}-{index}: the last records of {len(lost)} keys"] if lost else []
    return faults


def is_there(record: Record, there: dict[int, int | None]) -> bool:
    """`there`: the offset of each number."""
    number = _number(record)
    return number in there and record.offset in (None, there[number])


def _number(record: Record) -> int:
    return int(record.value.partition(b":")[0])


def all_seen(readers: list[Reader]) -> dict[int, set[int]]:
    """By either."""
    return {
        n: {each for reader in readers for each in {*reader.seen[n]}} for n in range(PARTITIONS)
    }


def wrong_with(client: Client) -> list[str]:
    """What its user saw."""
    kinds = Counter(client.failed).most_common(SHOWN_MAX)
    told = [f"{client.name}: failed {count} times: {why}" for why, count in kinds]
    if isinstance(client, Writer) and client.left:
        told.append(f"{client.name}: {client.left} were never answered")
    return told


def hurt(cluster: LocalCluster, rng: random.Random, seconds: float) -> list[Outage]:
    did, end_s = list[Outage](), time.monotonic() + seconds
    while time.monotonic() < end_s:
        quiet = rng.randrange(QUIET_EACH) == 0
        time.sleep(rng.uniform(*(QUIET_S if quiet else BETWEEN_S)))
        name = rng.choice(list(FAULTS))
        print(f"{time.strftime('%H:%M:%S')} {name}", file=sys.stderr, flush=True)
        began_s = time.monotonic()
        FAULTS[name](cluster, rng)
        did.append(Outage(name, began_s, time.monotonic()))
    counts = Counter(one.name for one in did)
    print(f"done: {', '.join(f'{name} {count}' for name, count in counts.most_common())}")
    return did


def too_long(client: Client, outages: list[Outage], machine: MachineShare) -> list[str]:
    """Stalls until now that the faults do not explain; prints the longest."""
    stalls = client.stalls_until(time.monotonic())
    more_s = READER_S if isinstance(client, Reader) else 0.0
    found = judged(stalls, outages, machine, more_s)
    longest_s = max((one.stall.ended_s - one.stall.began_s for one in found), default=0.0)
    idle_s = max((one.idle_s for one in found), default=0.0)
    beyond_s = max((one.unexplained_s for one in found), default=0.0)
    print(
        f"{client.name}: got nothing done for {longest_s:.1f} s at most ({idle_s:.1f} s on an idle "
        f"machine); {beyond_s:.1f} s of a stall are not explained by faults"
    )
    return [
        f"{client.name}: got nothing done for {one.stall.ended_s - one.stall.began_s:.1f} s, of "
        f"which faults do not explain {one.unexplained_s:.1f} s"
        for one in found
        if one.unexplained_s > UNEXPLAINED_S_MAX
    ]


def tell(writers: list[Writer], readers: list[Reader]) -> None:
    acked = sum(len(rows) for writer in writers for rows in writer.acked.values())
    refused = Counter(why for reader in readers for why in reader.refused)
    print(f"acknowledged: {acked}; commits refused: {refused.total()}")
    for why, count in refused.most_common():
        print(f"  {count}: {why}")


def a_cluster(directory: Path, *, secure: bool) -> LocalCluster:
    objects = directory / "objects.yaml"
    objects.write_text("---\n".join([OBJECTS, *(objects_of_users() if secure else ())]))
    if secure:
        return SecuredCluster(directory / "c", objects)
    return LocalCluster(directory / "c", brokers=None, files=[objects], forked=False)


def run(
    directory: Path,
    seconds: float,
    seed: int,
    clients: str,
    *,
    operations: bool = False,
    secure: bool = False,
) -> list[str]:
    """What was wrong; prints what was done."""
    rng = random.Random(seed)
    with a_cluster(directory, secure=secure) as cluster, MachineShare.measured() as machine:
        place = Place(
            bootstrap=cluster.bootstrap,
            work=directory,
            seed=seed,
            cooperative=bool(seed % 2),
            writer=cluster.folder("writer") if isinstance(cluster, SecuredCluster) else None,
            reader=cluster.folder("reader") if isinstance(cluster, SecuredCluster) else None,
        )
        kind = KINDS[clients]().prepare(place)
        writers = [kind.writer(place, PLAIN, 0), kind.writer(place, COMPACTED, KEYS)]
        readers = [kind.reader(place, number) for number in range(2)]
        for client in (*writers, *readers):
            client.start()
        begun = [each.begun for each in (*writers, *readers)]
        wait_for("each works", lambda: all(one.is_set() for one in begun), BEGINS_S_MAX)
        wrong: list[str] = []
        with contextlib.ExitStack() as stack:
            let_through = stack.enter_context(a_stranger(cluster))
            if operations:
                wrong = stack.enter_context(administrated(cluster, seed))
            outages = hurt(cluster, rng, seconds)
        for topic in (PLAIN, COMPACTED):
            cluster.wait_isr(topic, 3)
        for client in (*writers, *readers):
            wrong += too_long(client, outages, machine)
        slowdown = machine.slowdown(outages[0].began_s, time.monotonic())
        print(f"the machine was {slowdown:.1f} times slower than idle, in the mean")
        for writer in writers:
            writer.end()
        plain, compacted = (read_all(cluster, topic) for topic in (PLAIN, COMPACTED))
        all_are = {index: {each.offset for each in plain[index]} for index in range(PARTITIONS)}
        with contextlib.suppress(AssertionError):  # then it is told below
            wait_for("the group has read all", lambda: all_seen(readers) == all_are, GOES_ON_S_MAX)
        for reader in readers:
            reader.end()
    tell(writers, readers)
    return [
        *wrong,
        *sorted({*let_through}),
        *(said for client in (*writers, *readers) for said in wrong_with(client)),
        *wrong_in_plain(writers[0].acked, plain, all_seen(readers)),
        *wrong_in_compacted(writers[1].acked, compacted),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.integration.chaos")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--clients", choices=sorted(KINDS), default="librdkafka")
    parser.add_argument("--operations", action="store_true", help="beside it, an administrator")
    parser.add_argument("--secure", action="store_true", help="TLS, logins, rights and quotas")
    parser.add_argument("--keep", type=Path, help="an empty directory for data and logs")
    given = parser.parse_args()
    print(f"{given.clients}, seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        work = given.keep or Path(directory)
        wrong = run(
            work,
            given.seconds,
            given.seed,
            given.clients,
            operations=given.operations,
            secure=given.secure,
        )
    for each in wrong:
        print(each)
    print("nothing is lost, doubled, out of order, kept back or late" if not wrong else "NOT SO")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
