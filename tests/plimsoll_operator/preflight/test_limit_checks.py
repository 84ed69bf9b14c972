"""`plimsoll preflight --file`: does a LogCluster with its Topics keep to the published limits?"""

from typing import Any

import pytest
from tests.plimsoll_operator.builders import a_cluster
from tests.plimsoll_operator.preflight.reviewing import ReviewingTransport, a_server

from plimsoll_core.published_limits import (
    CLUSTERS_OF_OPERATOR,
    LIMITS,
    PARTITIONS_OF_CLUSTER,
    SizeLimit,
)
from plimsoll_operator.api.broker_configs import settings_of
from plimsoll_operator.api.load import from_object
from plimsoll_operator.api.topic import Topic
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_operator.manifests.statefulset import RESOURCES_DEFAULT
from plimsoll_operator.preflight.facts import NotRead, Wishes
from plimsoll_operator.preflight.gather import Gatherer
from plimsoll_operator.preflight.limit_checks import MEMORY_DEFAULT, limits

NONE: frozenset[tuple[str, str]] = frozenset()
LARGE = {"brokers": {"resources": {"limits": {"memory": "8Gi"}}}}


def a_topic(name: str = "orders", cluster: str = "main", **spec: Any) -> Topic:
    meta = {"name": name, "namespace": "kafka", "uid": name}
    body = {"apiVersion": "plimsoll.dev/v1alpha1", "kind": "Topic", "metadata": meta}
    return from_object({**body, "spec": {"clusterRef": {"name": cluster}, **spec}}, Topic)


def some(count: int, partitions: int) -> list[Topic]:
    return [a_topic(f"t{number}", partitions=partitions) for number in range(count)]


def allowing(partitions: int) -> dict[str, Any]:
    return {"topics": {"limits": {"partitionsPerCluster": partitions}}, **LARGE}


@pytest.mark.parametrize(
    ("spec", "topics", "result", "sentence"),
    [
        ({}, some(2, 100), "ok", "2 Topics with 200 partitions keep to all"),
        ({}, [a_topic()], "ok", "1 Topic with 6 partitions"),
        ({}, [a_topic(partitions=400, replicationFactor=1)], "ok", "134 replicas a broker"),
        ({}, some(1, 10_000), "warning", "Topic t0 has 10,000 partitions; Plimsoll is made and"),
        ({}, some(501, 1), "warning", "LogCluster main has 501 Topic objects"),
        (
            LARGE,
            some(11, 1_000),
            "failed",
            "partitionsPerCluster allows 10,000, so the cluster would refuse the rest",
        ),
        (
            allowing(100),
            some(2, 100),
            "failed",
            "have 200 partitions together",
        ),
        (allowing(20_000), some(11, 1_000), "warning", "allows 20,000 partitions"),
        (allowing(20_000), some(21, 1_000), "failed", "raise the LogCluster's"),
        (allowing(20_000), some(2, 5), "warning", "Test a cluster of that size first."),
        (
            {"brokers": {"resources": {"limits": {"memory": "256Mi"}}}},
            some(3, 1_000),
            "failed",
            "LogCluster main: each broker would have 3,000 replicas, but its memory has room for",
        ),
        ({}, [a_topic(cluster="other", partitions=10_000)], "ok", "0 Topics with 0 partitions"),
    ],
)
def test_plan_beyond_a_limit_is_named_with_remedy(
    spec: dict[str, Any], topics: list[Topic], result: str, sentence: str
) -> None:
    verdict = limits(a_cluster(**spec), topics, NONE)
    assert sentence in verdict.message
    assert verdict.result == result


def test_small_pool_is_named() -> None:
    pools = [
        {"name": "small", "firstId": 0, "brokers": 2, "resources": {"limits": {"memory": "64Mi"}}},
        {"name": "large", "firstId": 100, "brokers": 2},
    ]
    verdict = limits(a_cluster(pools=pools), some(1, 1_000), NONE)
    assert verdict.result == "failed"
    sentence = "Pool small: each broker would have 750 replicas, but its memory has room for only"
    assert f"{sentence} 682." in verdict.message


def test_clusters_of_one_operator_are_counted_once() -> None:
    most = CLUSTERS_OF_OPERATOR.most
    there = frozenset(("kafka", f"c{n}") for n in range(most - 1)) | {("kafka", "main")}
    assert limits(a_cluster(), [], there).result == "ok"
    beyond = limits(a_cluster(), [], there | {("kafka", "more")})
    assert beyond.result == "warning"
    assert f"The operator has {most + 1} LogClusters" in beyond.message


async def test_clusters_are_read_from_watched_namespaces() -> None:
    server = a_server(installed=True)
    for namespace in ("kafka", "shop"):
        meta = {"name": "main", "namespace": namespace}
        server.seed(LOG_CLUSTERS, {"metadata": meta, "spec": {"storage": {"size": "1Gi"}}})
    transport = ReviewingTransport(server)

    async def found(*watched: str) -> frozenset[tuple[str, str]] | NotRead:
        wishes = Wishes(namespace="kafka", watched=watched)
        return await Gatherer(KubeApi(transport), transport, wishes).clusters()

    assert await found() == {("kafka", "main"), ("shop", "main")}
    assert await found("shop") == {("shop", "main")}


async def test_kubernetes_without_crds_has_no_clusters() -> None:
    transport = ReviewingTransport(a_server(installed=False))
    gatherer = Gatherer(KubeApi(transport), transport, Wishes(namespace="kafka"))
    assert await gatherer.clusters() == NONE


def test_unread_clusters_are_a_warning() -> None:
    refused = NotRead(message="forbidden", refused=True)
    assert limits(a_cluster(), [], refused).result == "warning"
    assert limits(None, [], NONE).result == "warning"


def test_preflight_counts_with_defaults_of_the_product() -> None:
    assert RESOURCES_DEFAULT["limits"]["memory"] == MEMORY_DEFAULT
    assert settings_of(a_cluster()).partitions_per_cluster_max == PARTITIONS_OF_CLUSTER.most


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.what)
def test_each_limit_says_cost_and_remedy(limit: SizeLimit) -> None:
    beyond = limit.exceeded(limit.most + 1, "It")
    assert limit.exceeded(limit.most, "It") is None
    assert beyond is not None
    assert limit.cost in beyond.message
    assert beyond.message.endswith(".")
