"""How soon Topics are Ready: many that are applied at once, and one at a time.

Against a LogCluster that runs (`--cluster namespace/name`), by the current kubeconfig.  Topics are
created over connections of their own and seen by a watch, as `kubectl wait` sees them; they have
one partition on one broker, and are deleted at the end.  Machines differ: quote two builds of the
operator on one machine.

    KUBECONFIG=… python -m bench.topics --cluster kafka/main --topics 300 --singles 20
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
import uuid
from contextlib import aclosing

from plimsoll_operator.api.conditions import is_true
from plimsoll_operator.kube.kube_api import KubeApi, Listed, Object, follow
from plimsoll_operator.kube.official_transport import OfficialTransport, find_access
from plimsoll_operator.kube.resources import TOPICS

CONNECTIONS = 32
WAIT_S = 300
PARTITIONS = 1


class Watched:
    """The time when each topic was first seen Ready (monotonic seconds), by its object's name."""

    def __init__(self, kube: KubeApi, namespace: str) -> None:
        self.ready_s: dict[str, float] = {}
        self._kube = kube
        self._namespace = namespace
        self._changed = asyncio.Event()

    async def follow(self) -> None:
        async with aclosing(follow(self._kube, TOPICS, self._namespace)) as told:
            async for seen in told:
                if isinstance(seen, Listed) or not is_true(seen["object"], "Ready"):
                    continue
                self.ready_s.setdefault(seen["object"]["metadata"]["name"], time.monotonic())
                self._changed.set()
        raise RuntimeError("the watch fell behind: what it saw is no measurement")

    async def until(self, names: set[str]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not names <= self.ready_s.keys():
                self._changed.clear()
                await self._changed.wait()


def _topic(namespace: str, name: str, cluster: str) -> Object:
    return {
        "apiVersion": TOPICS.api_version,
        "kind": TOPICS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "clusterRef": {"name": cluster},
            "partitions": PARTITIONS,
            "replicationFactor": 1,
            "minInSyncReplicas": 1,
        },
    }


async def _delete(kube: KubeApi, namespace: str, made: list[Object]) -> None:
    for body in made:
        meta = body["metadata"]
        await kube.delete(TOPICS, namespace, meta["name"], uid=meta["uid"])


async def _measure(options: argparse.Namespace) -> None:
    namespace, _, cluster = options.cluster.partition("/")
    access = await find_access()
    writes = OfficialTransport(access, connections=CONNECTIONS)
    watches = OfficialTransport(access, connections=2)
    kube, run = KubeApi(writes), uuid.uuid4().hex[:6]
    watched = Watched(KubeApi(watches), namespace)
    following = asyncio.ensure_future(watched.follow())
    made: list[Object] = []

    async def create(name: str) -> None:
        made.append(await kube.create(TOPICS, _topic(namespace, name, cluster)))

    try:
        singles: list[float] = []
        for number in range(options.singles):
            name = f"bench-{run}-one-{number}"
            began_s = time.monotonic()
            await create(name)
            await watched.until({name})
            singles.append((watched.ready_s[name] - began_s) * 1000)
        names = {f"bench-{run}-{number}" for number in range(options.topics)}
        began_s = time.monotonic()
        await asyncio.gather(*(create(name) for name in sorted(names)))
        created_s = time.monotonic() - began_s
        await watched.until(names)
        took_s = max(watched.ready_s[name] for name in names) - began_s
    finally:
        following.cancel()
        await asyncio.wait([following])
        await _delete(kube, namespace, made)
        await writes.close()
        await watches.close()
    low, high = min(singles), max(singles)
    print(f"one at a time: p50 {statistics.median(singles):.0f} ms ({low:.0f} – {high:.0f})")
    print(
        f"{len(names)} at once: all created in {created_s:.1f} s, all Ready in {took_s:.1f} s: "
        f"{len(names) / took_s:.0f} a second"
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cluster", default="kafka/main", help="namespace/name of a LogCluster")
    parser.add_argument("--topics", type=int, default=300)
    parser.add_argument("--singles", type=int, default=20)
    asyncio.run(_measure(parser.parse_args()))


if __name__ == "__main__":
    main()
