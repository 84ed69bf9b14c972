"""What the controller decides about quotas: of clients' tools, of LogClusters, of User objects."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plimsoll_core.controller.test_security import OBJECT, Controller

from plimsoll_core.controller.security.quota_changes import CHANGES_MAX
from plimsoll_core.errors import Code, Reason
from plimsoll_core.messages import security as m
from plimsoll_core.messages.requests import Done, Refused
from plimsoll_core.quotas.form import malformed_entity, malformed_values
from plimsoll_core.quotas.state import (
    BY_CLUSTER,
    DEFAULT,
    ClientQuotas,
    QuotaEntity,
    QuotaRow,
    QuotaValues,
)

BOB = QuotaEntity(user="bob")
EVERYBODY = QuotaEntity(user=DEFAULT)


def changed(entity: QuotaEntity = BOB, **values: float | None) -> m.QuotaChange:
    return m.QuotaChange(entity=entity, values=values)


def codes(answer: Any) -> list[int]:
    assert isinstance(answer, m.QuotasAltered), answer
    return [one.code for one in answer.entities]


def values(controller: Controller, entity: QuotaEntity = BOB) -> dict[str, float]:
    row = controller.image.quotas.rows.get(entity)
    return {} if row is None else dict(row.values.items())


def test_quota_row_goes_with_its_last_key() -> None:
    controller = Controller()
    ask = controller.ask
    assert codes(ask(m.AlterQuotas(changes=(changed(producer_byte_rate=5.0),)))) == [0]
    assert codes(ask(m.AlterQuotas(changes=(changed(consumer_byte_rate=6.0),)))) == [0]
    assert values(controller) == {"producer_byte_rate": 5.0, "consumer_byte_rate": 6.0}
    ask(m.AlterQuotas(changes=(changed(producer_byte_rate=None),)))
    assert values(controller) == {"consumer_byte_rate": 6.0}
    assert controller.image.quotas.limits_clients
    ask(m.AlterQuotas(changes=(changed(consumer_byte_rate=None),)))
    assert controller.image.quotas == ClientQuotas()


def test_change_that_changes_nothing_writes_nothing() -> None:
    controller = Controller()
    controller.ask(m.AlterQuotas(changes=(changed(producer_byte_rate=5.0),)))
    offset = controller.image.next_offset
    controller.ask(m.AlterQuotas(changes=(changed(producer_byte_rate=5.0),)))
    controller.ask(m.AlterQuotas(changes=(changed(consumer_byte_rate=None),)))
    assert controller.image.next_offset == offset


def test_validation_alone_changes_nothing() -> None:
    controller = Controller()
    asked = m.AlterQuotas(changes=(changed(producer_byte_rate=5.0),), validate_only=True)
    assert codes(controller.ask(asked)) == [0]
    assert not values(controller)


def test_each_entity_is_changed_for_itself() -> None:
    controller = Controller()
    wrong = (changed(producer_byte_rate=-1.0), changed(QuotaEntity(), producer_byte_rate=1.0))
    right = changed(EVERYBODY, producer_byte_rate=1.0)
    answer = controller.ask(m.AlterQuotas(changes=(*wrong, right)))
    assert codes(answer) == [Code.INVALID_REQUEST, Code.INVALID_REQUEST, 0]
    assert values(controller, EVERYBODY) == {"producer_byte_rate": 1.0}
    twice = m.AlterQuotas(changes=(changed(producer_byte_rate=1.0),) * 2)
    assert codes(controller.ask(twice)) == [Code.INVALID_REQUEST] * 2


def test_older_metadata_version_takes_no_quotas() -> None:
    controller = Controller(version=2)
    answer = controller.ask(m.AlterQuotas(changes=(changed(producer_byte_rate=1.0),)))
    assert isinstance(answer, Refused)
    assert answer.reason == Reason.MetadataTooOld.name
    assert controller.ask(m.DeclareQuotas(rows=())) == Done(), "nothing is declared"


def test_request_of_too_many_entities_is_refused() -> None:
    changes = tuple(
        changed(QuotaEntity(user=f"u{number}"), producer_byte_rate=1.0)
        for number in range(CHANGES_MAX + 1)
    )
    assert isinstance(Controller().ask(m.AlterQuotas(changes=changes)), Refused)


def test_quota_change_requires_alter_configs_on_cluster() -> None:
    controller = Controller()
    controller.enforce()
    asked = m.AlterQuotas(changes=(changed(producer_byte_rate=1.0),), behalf=controller.logged_in())
    answer = controller.ask(asked)
    assert isinstance(answer, Refused)
    assert answer.code == Code.CLUSTER_AUTHORIZATION_FAILED


# --- objects -------------------------------------------------------------------------------------


def a_user(quotas: QuotaValues | None = None, **more: Any) -> m.DeclareUser:
    return m.DeclareUser(object=OBJECT, user_name="alice", quotas=quotas, **more)


ALICES = QuotaEntity(user="alice")


def test_user_object_owns_the_quotas_it_declares() -> None:
    controller = Controller()
    mine = changed(ALICES, producer_byte_rate=1.0)
    assert codes(controller.ask(m.AlterQuotas(changes=(mine,)))) == [0]
    assert controller.ask(a_user(QuotaValues(consumer_byte_rate=9.0))) == Done()
    assert values(controller, ALICES) == {"consumer_byte_rate": 9.0}, "taken over as a whole"
    answer = controller.ask(m.AlterQuotas(changes=(mine,)))
    assert codes(answer) == [Code.POLICY_VIOLATION]
    assert "User kafka/alice" in answer.entities[0].message
    assert controller.ask(a_user()) == Done()
    assert not values(controller, ALICES)
    assert codes(controller.ask(m.AlterQuotas(changes=(mine,)))) == [0]
    assert controller.ask(a_user()) == Done()
    assert values(controller, ALICES) == {"producer_byte_rate": 1.0}, "a client's stay"


def test_quotas_go_with_their_user_object() -> None:
    controller = Controller()
    controller.ask(a_user(QuotaValues(consumer_byte_rate=9.0)))
    assert controller.ask(m.UserObjectGone(object=OBJECT)) == Done()
    assert controller.image.quotas == ClientQuotas()


def test_user_object_with_empty_quota_changes_nothing() -> None:
    controller = Controller()
    before = controller.image
    answer = controller.ask(a_user(QuotaValues(producer_byte_rate=-1.0)))
    assert isinstance(answer, Refused)
    assert controller.image == before


def by_cluster(entity: QuotaEntity, **stated: float) -> QuotaRow:
    return QuotaRow(entity=entity, values=QuotaValues(**stated), owner=BY_CLUSTER)


def test_logcluster_owns_the_defaults_that_it_declares() -> None:
    controller = Controller()
    row = by_cluster(EVERYBODY, producer_byte_rate=5.0)
    assert controller.ask(m.DeclareQuotas(rows=(row,))) == Done()
    answer = controller.ask(m.AlterQuotas(changes=(changed(EVERYBODY, producer_byte_rate=1.0),)))
    assert codes(answer) == [Code.POLICY_VIOLATION]
    assert "LogCluster" in answer.entities[0].message
    assert codes(controller.ask(m.AlterQuotas(changes=(changed(producer_byte_rate=1.0),)))) == [0]
    assert controller.ask(m.DeclareQuotas(rows=())) == Done()
    assert not values(controller, EVERYBODY)
    assert values(controller) == {"producer_byte_rate": 1.0}


def test_logcluster_declares_nothing_of_a_named_user() -> None:
    answer = Controller().ask(m.DeclareQuotas(rows=(by_cluster(BOB, producer_byte_rate=5.0),)))
    assert isinstance(answer, Refused)


NAMES = st.sampled_from([None, DEFAULT, "a", "b"])
VALUES = st.one_of(st.none(), st.floats(min_value=-1, max_value=10, allow_nan=False))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            NAMES,
            NAMES,
            st.dictionaries(
                st.sampled_from(["producer_byte_rate", "request_percentage", "nothing"]), VALUES
            ),
        ),
        max_size=8,
    )
)
def test_malformed_quotas_of_clients_are_refused(
    asked: list[tuple[str | None, str | None, dict[str, float | None]]],
) -> None:
    """`Controller` compares each image with one from a snapshot, and with the replayed records."""
    controller = Controller()
    for user, client_id, stated in asked:
        entity = QuotaEntity(user=user, client_id=client_id)
        controller.ask(m.AlterQuotas(changes=(changed(entity, **stated),)))
    for row in controller.image.quotas.rows.values():
        assert not malformed_entity(row.entity)
        assert not malformed_values(row.entity, row.values)
        assert row.values != QuotaValues()
