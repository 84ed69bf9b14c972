"""One row a kind: what the registry's loops stand on."""

from tests.plimsoll_operator.builders import TOPIC_ID, an_image, with_topic
from tests.plimsoll_operator.terms import Scene

from plimsoll_core.cluster.model import TopicObject
from plimsoll_core.messages.requests import TopicAnswer, TopicsAnswer
from plimsoll_operator.api.verification import VerificationStatus
from plimsoll_operator.kube.resources import VERIFICATIONS, WATCHED_KINDS
from plimsoll_operator.kube.seen_objects import Objects
from plimsoll_operator.reconcile import registry
from plimsoll_operator.reconcile.reconcile_term import Task, Work
from plimsoll_operator.reconcile.topic.topic_memory import topics_of
from plimsoll_operator.status.status_writer import Target

KEY = ("kafka", "orders")


def put_topic(scene: Scene, generation: int) -> None:
    metadata = {"name": "orders", "namespace": "kafka", "uid": "u1", "generation": generation}
    scene.objects.topics.put({"metadata": metadata, "spec": {"clusterRef": {"name": "main"}}})


def test_registry_has_one_row_per_kind():
    assert tuple(kind.resource for kind in registry.KINDS) == WATCHED_KINDS
    objects = Objects()
    assert {id(kind.shelf(objects)) for kind in registry.KINDS} == {
        id(shelf) for shelf in vars(objects).values()
    }


def test_registry_knows_a_reconciler_for_every_task():
    assert set(registry.RECONCILERS) == set(Task)


def test_resync_queues_everything_including_absent_topics():
    scene = Scene(an_image())
    put_topic(scene, generation=1)
    other = {"name": "other", "namespace": "kafka", "uid": "u2", "generation": 1}
    scene.objects.topics.put({"metadata": other, "spec": {"clusterRef": {"name": "second"}}})
    assert list(registry.all_work(scene.term)) == [
        Work(Task.CLUSTER, scene.term.key),
        Work(Task.TOPIC, KEY),
        Work(Task.ABSENT_TOPICS, scene.term.key),
        *(Work(Task.BROKER, ("kafka", f"main-{broker_id}")) for broker_id in range(3)),
    ]


async def test_topic_and_verification_of_one_name_differ():
    held = TopicObject(namespace="kafka", name="orders", uid="u1")
    scene = Scene(with_topic(an_image(), ((0, 1, 2),), held))
    scene.controller.reply = lambda _: TopicsAnswer(
        topics=(TopicAnswer(name="orders", topic_id=TOPIC_ID),)
    )
    put_topic(scene, generation=3)
    await scene.run(registry.reconcile, Work(Task.TOPIC, KEY))
    scene.shows(Target(VERIFICATIONS, *KEY), 7, VerificationStatus(phase="Pending"))
    assert topics_of(scene.term).observed == {KEY: 3}
