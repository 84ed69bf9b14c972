"""Series of a whole cluster, healthy but for what a scene changes: what alerts must keep quiet in.

Three brokers, two operators; samples every 15 s for an hour.
"""

from typing import Any

INTERVAL_S = 15
SAMPLES = 4 * 60
CLUSTER = 'namespace="kafka",cluster="main"'
CAUSES = (
    ("restart", "false"), ("roll", "true"), ("reassign", "true"), ("lag", "false"),
    ("fenced", "false"), ("evicted", "false"), ("evicted", "true"), ("disk", "false"),
    ("unknown", "false"),
)  # fmt: skip
SEEN = ("lag", "fenced", "restart", "unknown")
STALE = "stale"
MONTH_S = 30 * 86_400


def minutes(number: float) -> int:
    """Samples."""
    return int(number * 60 / INTERVAL_S)


def steps(*parts: tuple[float, Any]) -> str:
    """(minutes, value): a number, a text like `5+2` that grows, or STALE, which stays until the
    next one; the last one fills the hour up."""
    found, left = [], SAMPLES
    for number, (lasts, value) in enumerate(parts):
        count = left if number == len(parts) - 1 else minutes(lasts)
        left -= count
        if value == STALE:
            found.append(f"stale _x{count - 1}" if count > 1 else "stale")
        else:
            found.append(f"{value}x{count - 1}")
    return " ".join(found)


def always(value: Any) -> str:
    return steps((0, value))


class Scene:
    """`series` by name and labels, as promtool writes them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.series: dict[str, str] = {}
        for instance in "ab":
            self._operator(instance)
        self._leader("a")
        for broker in range(3):
            self.broker(broker)

    def _operator(self, instance: str) -> None:
        own = f'instance="{instance}"'
        self.set("plimsoll_operator_up", own, always(1))
        self.set("process_start_time_seconds", own, always(-90_000))
        self.set("plimsoll_cluster_known", f"{CLUSTER},{own}", always(1))
        self.set("plimsoll_unclean_elections_total", f"{CLUSTER},{own}", always(0))
        for request in ("Heartbeat", "Leading"):
            name = "plimsoll_operator_handler_failures_total"
            self.set(name, f'{own},request="{request}"', always(0))
        for broker in range(4):
            for cause, planned in CAUSES:
                self.shrinks(instance, broker, cause, planned, always(0))

    def _leader(self, instance: str) -> None:
        self.led(instance, "controller_active", always(1))
        for name in (
            "partitions_offline", "partitions_under_min_isr", "partitions_reduced_to_min_isr",
            "partitions_moving", "restart_grants", "moves_paused",
            "controller_commit_pending_seconds", "controller_commit_failures_total",
            "reconcile_running_seconds", "reconcile_failing_seconds", "history_behind_seconds",
            "history_rows_dropped_total",
        ):  # fmt: skip
            self.led(instance, name, always(0))
        self.led(instance, "brokers_ready", always(3))
        self.led(instance, "controller_epoch", always(7))
        for loss in ("certain", "possible"):
            labels = f'{CLUSTER},instance="{instance}",loss="{loss}"'
            self.set("plimsoll_unclean_recovery_partitions", labels, always(0))
        for listener, kind in (("tls", "own"), ("", "authority")):
            labels = f'{CLUSTER},instance="{instance}",listener="{listener}",kind="{kind}"'
            self.set("plimsoll_certificate_expiry_time_seconds", labels, always(MONTH_S))
        for bound in ("0.025", "+Inf"):
            labels = f'{CLUSTER},instance="{instance}",le="{bound}"'
            self.set("plimsoll_controller_commit_seconds_bucket", labels, always("0+10"))
        for broker in range(3):
            self.member(instance, broker, "member_fenced", always(0))
            self.member(instance, broker, "metadata_backlog_seconds", always(0))

    def broker(self, broker: int) -> None:
        for name, value in (
            ("ready", 1), ("leaderless_partitions", 0), ("under_min_isr_partitions", 0),
            ("reduced_to_min_isr_partitions", 0), ("controller_silence_seconds", 1),
            ("offline_partitions", 0), ("metadata_unknown", 0), ("moving_partitions", 0),
            ("moved_bytes_total", 0), ("disk_free_bytes", 80_000_000_000),
            ("disk_size_bytes", 100_000_000_000), ("cleaner_due_logs", 0),
            ("cleaner_uncleanable_logs", 0), ("group_loading_seconds", 0),
            ("groups_unloaded", 0),
        ):  # fmt: skip
            self.of(broker, name, always(value))
        self.of(broker, "handler_failures_total", always(0), api="FETCH")
        for follower in range(3):
            if follower != broker:
                self.of(broker, "follower_lag_records", always(50), follower=str(follower))
                self.of(broker, "follower_lag_seconds", always(0.5), follower=str(follower))
                for cause in SEEN:
                    self.seen(broker, follower, cause, always(0))

    # --- what is set ----------------------------------------------------------------------------

    def set(self, name: str, labels: str, values: str) -> None:
        self.series[f"{name}{{{labels}}}"] = values

    def led(self, instance: str, name: str, values: str) -> None:
        self.set(f"plimsoll_{name}", f'{CLUSTER},instance="{instance}"', values)

    def member(self, instance: str, broker: int, name: str, values: str) -> None:
        labels = f'{CLUSTER},broker="{broker}",instance="{instance}"'
        self.set(f"plimsoll_{name}", labels, values)

    def shrinks(self, instance: str, broker: int, cause: str, planned: str, values: str) -> None:
        labels = (
            f'{CLUSTER},broker="{broker}",cause="{cause}",planned="{planned}",instance="{instance}"'
        )
        self.set("plimsoll_isr_shrinks_total", labels, values)

    def of(self, broker: int, name: str, values: str, **labels: str) -> None:
        more = "".join(f',{key}="{value}"' for key, value in labels.items())
        self.set(f"plimsoll_broker_{name}", f'{CLUSTER},broker="{broker}"{more}', values)

    def seen(
        self, broker: int, follower: int, cause: str, values: str, planned: str = "false"
    ) -> None:
        labels = {"follower": str(follower), "cause": cause, "planned": planned}
        self.of(broker, "isr_shrinks_total", values, **labels)

    def away(self, broker: int, since: float, lasts: float) -> None:
        """It is not scraped meanwhile, and counts from the start again."""
        own = f'broker="{broker}"'
        for name in list(self.series):
            if name.startswith("plimsoll_broker_") and own in name:
                value = self.series[name].split("x")[0]
                self.series[name] = steps((since, value), (lasts, STALE), (0, value))

    def test(self) -> dict[str, Any]:
        """As promtool has it."""
        return {
            "name": self.name,
            "interval": f"{INTERVAL_S}s",
            "input_series": [
                {"series": name, "values": values} for name, values in self.series.items()
            ],
        }


def rises(to: Any, at: float = 10) -> str:
    return steps((at, 0), (0, to))


def for_a_while(value: Any, lasts: float, usual: Any = 0, at: float = 10) -> str:
    return steps((at, usual), (lasts, value), (0, usual))


def a_roll() -> Scene:
    """Broker 2 is restarted by grant: it is away for a minute, and in sync after two."""
    scene = Scene("a broker is restarted by grant")
    scene.away(2, 10.5, 1)
    scene.led("a", "restart_grants", for_a_while(1, 4))
    scene.led("a", "partitions_reduced_to_min_isr", for_a_while(20, 3, at=10.5))
    scene.led("a", "brokers_ready", for_a_while(2, 2, usual=3, at=10.5))
    scene.shrinks("a", 2, "roll", "true", rises(20))
    for leader in (0, 1):
        scene.seen(leader, 2, "roll", rises(10), planned="true")
        scene.of(leader, "reduced_to_min_isr_partitions", for_a_while(10, 3, at=10.5))
        scene.of(leader, "follower_lag_records", for_a_while("50+4000", 2, 50), follower="2")
        scene.of(leader, "follower_lag_seconds", for_a_while("15+15", 2, 0.5), follower="2")
    return scene


def a_node_drain() -> Scene:
    """kubectl drain evicts broker 2, whose pod comes up elsewhere four minutes later; its leaders
    know no eviction."""
    scene = Scene("a node is drained with kubectl drain")
    scene.away(2, 10.5, 3.5)
    scene.led("a", "partitions_reduced_to_min_isr", for_a_while(20, 4, at=10.5))
    scene.member("a", 2, "member_fenced", for_a_while(1, 3.5, at=10.5))
    scene.led("a", "brokers_ready", for_a_while(2, 4, usual=3, at=10.5))
    scene.shrinks("a", 2, "evicted", "true", rises(20))
    for leader in (0, 1):
        scene.seen(leader, 2, "restart", rises(10))
        scene.of(leader, "reduced_to_min_isr_partitions", for_a_while(10, 4, at=10.5))
    return scene


def a_broker_drain() -> Scene:
    """Broker 2 leaves the cluster: everything is moved off it, and it goes."""
    scene = Scene("a broker is drained and removed")
    scene.led("a", "partitions_moving", steps((10, 0), (10, "40-1"), (0, 0)))
    scene.shrinks("a", 2, "reassign", "true", rises(40))
    for broker in (0, 1):
        scene.of(broker, "moving_partitions", for_a_while(20, 10))
        scene.of(broker, "moved_bytes_total", steps((10, 0), (10, "0+1000000"), (0, 40_000_000)))
        scene.seen(broker, 2, "reassign", rises(20), planned="true")
    scene.led("a", "brokers_ready", steps((22, 3), (0, 2)))
    for name in ("member_fenced", "metadata_backlog_seconds"):
        scene.member("a", 2, name, steps((22, 0), (0, STALE)))
    for name in list(scene.series):
        if name.startswith("plimsoll_broker_") and 'broker="2"' in name:
            value = scene.series[name].split("x")[0]
            scene.series[name] = steps((22, value), (0, STALE))
        elif "plimsoll_isr_shrinks_total" in name and 'broker="2"' in name:
            last = 40 if "reassign" in name and 'instance="a"' in name else 0
            scene.series[name] = steps((15, 0), (7, last), (0, STALE))
    return scene


def a_reassignment() -> Scene:
    """Forty minutes of copying to broker 2, whose volume fills by it and whose lag is what is not
    copied yet; at its end one replica leaves each ISR that it moves off."""
    scene = Scene("partitions are moved for forty minutes")
    scene.led("a", "partitions_moving", steps((10, 0), (40, "30-0.15"), (0, 0)))
    scene.of(2, "moving_partitions", for_a_while(10, 40))
    scene.of(2, "moved_bytes_total", steps((10, 0), (40, "0+300000000"), (0, 48_000_000_000)))
    free = steps((10, 80_000_000_000), (40, "80000000000-300000000"), (0, 32_000_000_000))
    scene.of(2, "disk_free_bytes", free)
    for leader in (0, 1):
        lag = steps((10, 50), (20, "1000000+5000"), (20, "1400000-17000"), (0, 50))
        scene.of(leader, "follower_lag_records", lag, follower="2")
        late = steps((10, 0.5), (40, "0+15"), (0, 0.5))
        scene.of(leader, "follower_lag_seconds", late, follower="2")
    scene.shrinks("a", 0, "reassign", "true", rises(30, at=50))
    return scene


def an_operator_failover() -> Scene:
    """The leading operator dies; the other one leads 30 s later.  Nobody leaves an ISR."""
    scene = Scene("the leading operator dies and the other one takes over")
    for name in list(scene.series):
        if 'instance="a"' in name:
            value = scene.series[name].split("x")[0]
            scene.series[name] = steps((10, value), (0, STALE))
            if "plimsoll_operator_up" not in name and "process_start" not in name:
                other = name.replace('instance="a"', 'instance="b"')
                if other not in scene.series:
                    scene.series[other] = steps((10.5, STALE), (0, value))
    scene.led("b", "controller_commit_failures_total", steps((10.5, STALE), (1, 1), (0, 1)))
    for broker in range(3):
        silence = steps((10, 1), (0.5, "15+10"), (0, 1))
        scene.of(broker, "controller_silence_seconds", silence)
    return scene


def a_deletion() -> Scene:
    """A LogCluster is deleted.  Its brokers take 45 s to stop, and the last of them finds that the
    others have fallen behind."""
    scene = Scene("a LogCluster is deleted")
    for name in list(scene.series):
        if CLUSTER in name:
            value = scene.series[name].split("x")[0]
            lasts = 10.75 if name.startswith("plimsoll_broker_") else 10
            scene.series[name] = steps((lasts, value), (0, STALE))
    for broker in range(3):
        silence = steps((10, 1), (0.75, "15+15"), (0, STALE))
        scene.of(broker, "controller_silence_seconds", silence)
        lost = steps((10, 0), (0.75, 4), (0, STALE))
        scene.of(broker, "leaderless_partitions", steps((10.25, 0), (0.5, 2), (0, STALE)))
        scene.seen(0, (broker + 1) % 3, "lag", lost)
    return scene


QUIET = (a_roll, a_node_drain, a_broker_drain, a_reassignment, an_operator_failover, a_deletion)
