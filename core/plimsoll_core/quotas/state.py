"""The committed quotas, and the choice of the one that applies to a client.

A part of a cluster's image; only the functions that apply records change it. Source: KIP-13,
KIP-55, KIP-124, KIP-599, KIP-612; Kafka's `ClientQuotaManager` for the order in which quotas are
looked up, and for the clients that share one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

import msgspec
from immutables import Map

DEFAULT = ""
"""The name of the default entity, which applies to every entity without its own row."""
BY_CLIENT = ""
"""The owner of a quota that a client set and no object declares."""
BY_CLUSTER = "LogCluster"
"""The owner of a quota that a LogCluster declares. The owner of a User object's quota is its
uid."""


class Quota(Enum):
    """The kinds of client quotas, by Kafka's keys."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


OF_CLIENTS = tuple(quota for quota in Quota if quota is not Quota.CONNECTION_CREATION_RATE)
"""The quotas of users and client ids. The remaining one, of new connections, is of addresses."""


class QuotaEntity(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The entity to which a quota row applies: a user, a client id, both together, or an address. A
    field is None if the row does not name it, and `DEFAULT` for every name without a row of its
    own."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def order(self) -> tuple[tuple[bool, str], ...]:
        names = (self.user, self.client_id, self.ip)
        return tuple((name is not None, name or "") for name in names)

    @property
    def parts(self) -> dict[str, str | None]:
        """Return the entity's names by Kafka's entity types ("user", "client-id", "ip"). The value
        None stands for the default entity."""
        found = {"user": self.user, "client-id": self.client_id, "ip": self.ip}
        return {kind: name or None for kind, name in found.items() if name is not None}

    def __str__(self) -> str:
        said = [f"{kind} {name or '<default>'}" for kind, name in self.parts.items()]
        return ", ".join(said)


class QuotaValues(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The limits in one row: bytes per second, percent of one processor, partitions created or
    deleted per second, connections per second. A limit is None if the row does not set it."""

    producer_byte_rate: float | None = None
    consumer_byte_rate: float | None = None
    request_percentage: float | None = None
    controller_mutation_rate: float | None = None
    connection_creation_rate: float | None = None

    def of(self, quota: Quota) -> float | None:
        value: float | None = getattr(self, quota.value)
        return value

    def items(self) -> Iterator[tuple[str, float]]:
        for quota in Quota:
            if (value := self.of(quota)) is not None:
                yield quota.value, value


def smallest(quota: Quota, *values: QuotaValues) -> float | None:
    """Return the smallest limit of this kind in the rows' values, or None if none of them sets
    it."""
    return min((rate for one in values if (rate := one.of(quota)) is not None), default=None)


class QuotaRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The committed quotas of one entity. `owner`: the uid of the User object that declares them,
    `BY_CLUSTER` or `BY_CLIENT`."""

    entity: QuotaEntity
    values: QuotaValues
    owner: str = BY_CLIENT


class QuotaAccount(NamedTuple):
    """The clients that use up one quota together: those of a user, of a client id, or of both."""

    user: str | None
    client_id: str | None


class QuotaLimit(NamedTuple):
    """The limit that applies to a client, and the account to which its use is charged. `bound`: in
    the unit of the quota (`QuotaValues`)."""

    quota: Quota
    bound: float
    account: QuotaAccount


class ClientQuotas(msgspec.Struct, frozen=True, kw_only=True):
    """All quota rows of a cluster. `addresses`: the number of rows about addresses."""

    rows: Map[QuotaEntity, QuotaRow] = Map()
    addresses: int = 0

    @property
    def limits_clients(self) -> bool:
        """True if any row is about users or client ids."""
        return len(self.rows) > self.addresses

    @property
    def limits_addresses(self) -> bool:
        return self.addresses > 0

    def with_row(self, row: QuotaRow) -> ClientQuotas:
        """Return the quotas with this row in place of the entity's former one."""
        is_new = row.entity not in self.rows
        addresses = self.addresses + (is_new and row.entity.ip is not None)
        return ClientQuotas(rows=self.rows.set(row.entity, row), addresses=addresses)

    def without(self, entity: QuotaEntity) -> ClientQuotas:
        addresses = self.addresses - (entity.ip is not None)
        return ClientQuotas(rows=self.rows.delete(entity), addresses=addresses)

    def limit(self, quota: Quota, user: str, client_id: str) -> QuotaLimit | None:
        """Return the limit for a user and client id from the first row, in Kafka's order, that sets
        the quota; None if no row does. A row about both limits each pair by itself; a row about a
        user or a client id limits all clients of that user or id together."""
        for named_user in (user, DEFAULT):
            for named_client in (client_id, DEFAULT, None):
                bound = self._bound(quota, named_user, named_client)
                if bound is not None:
                    shared = None if named_client is None else client_id
                    return QuotaLimit(quota, bound, QuotaAccount(user, shared))
        for named_client in (client_id, DEFAULT):
            bound = self._bound(quota, None, named_client)
            if bound is not None:
                return QuotaLimit(quota, bound, QuotaAccount(None, client_id))
        return None

    def _bound(self, quota: Quota, user: str | None, client_id: str | None) -> float | None:
        row = self.rows.get(QuotaEntity(user=user, client_id=client_id))
        return None if row is None else row.values.of(quota)

    def connections_a_second(self, ip: str) -> float | None:
        """Return the limit on new connections per second from an address, or None if there is no
        limit."""
        for name in (ip, DEFAULT):
            row = self.rows.get(QuotaEntity(ip=name))
            if row is not None and row.values.connection_creation_rate is not None:
                return row.values.connection_creation_rate
        return None

    def of_owner(self, owner: str) -> Iterator[QuotaRow]:
        """Yield the rows of an owner, in a fixed order."""
        mine = (row for row in self.rows.values() if row.owner == owner)
        return iter(sorted(mine, key=lambda row: row.entity.order))


def quotas_of(rows: Iterable[QuotaRow]) -> ClientQuotas:
    """Build the quotas from the rows of a snapshot."""
    found = Map({row.entity: row for row in rows})
    return ClientQuotas(rows=found, addresses=sum(entity.ip is not None for entity in found))


NO_QUOTAS = ClientQuotas()
"""The quotas of a cluster without limits."""
