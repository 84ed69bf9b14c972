"""The quotas of clients, as User objects and LogClusters state them: `spec.quotas` of both.

`values_of` and `rows_of` convert them for the metadata log.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from plimsoll_core.quotas.state import BY_CLUSTER, DEFAULT, QuotaEntity, QuotaRow, QuotaValues
from plimsoll_operator.api.meta import Amount, Api, described
from plimsoll_operator.api.quantities import amount, bytes_per_second


class DeclaredClientQuotas(Api, frozen=True, kw_only=True):
    """Limits at each broker; an unset field is unlimited."""

    producer_bytes_per_second: Annotated[
        Amount | None, described("Bytes per second produced; Kafka's producer_byte_rate.")
    ] = None
    consumer_bytes_per_second: Annotated[
        Amount | None, described("Bytes per second consumed; Kafka's consumer_byte_rate.")
    ] = None
    request_percentage: Annotated[
        Annotated[int, Meta(ge=1, le=100)] | None,
        described(
            "Processor time at each broker, in percent of one processor; Kafka's "
            "request_percentage."
        ),
    ] = None
    mutations_per_second: Annotated[
        Amount | None,
        described(
            "Partitions created or deleted and topics configured per second; Kafka's"
            " controller_mutation_rate."
        ),
    ] = None


class AddressQuotas(Api, frozen=True, kw_only=True):
    """Quotas of one client address, at each broker."""

    connections_per_second: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="New connections per second; Kafka's connection_creation_rate.",
        ),
    ]


class DefaultQuotas(Api, frozen=True, kw_only=True):
    """Default quotas, for clients without quotas of their own."""

    default_user: Annotated[
        DeclaredClientQuotas | None,
        described("Default quotas of each user; an unset field is unlimited."),
    ] = None
    default_client_id: Annotated[
        DeclaredClientQuotas | None,
        described(
            "Default quotas of each client id, for clients without a user's quota; "
            "an unset field is unlimited."
        ),
    ] = None
    default_ip: Annotated[
        AddressQuotas | None,
        described("Default quotas of each address; an unset field is unlimited."),
    ] = None


def values_of(declared: DeclaredClientQuotas | None) -> QuotaValues:
    """Convert the declared quotas of one client into the values that a broker enforces, in bytes
    per second, percent and mutations per second. A field that is unset, or all if `declared` is
    None, is unlimited."""
    if declared is None:
        return QuotaValues()
    produced, fetched = declared.producer_bytes_per_second, declared.consumer_bytes_per_second
    percentage, mutations = declared.request_percentage, declared.mutations_per_second
    return QuotaValues(
        producer_byte_rate=None if produced is None else float(bytes_per_second(produced)),
        consumer_byte_rate=None if fetched is None else float(bytes_per_second(fetched)),
        request_percentage=None if percentage is None else float(percentage),
        controller_mutation_rate=None if mutations is None else float(amount(mutations)),
    )


def rows_of(declared: DefaultQuotas | None) -> tuple[QuotaRow, ...]:
    """Convert a LogCluster's default quotas into the rows that the metadata log holds: one for each
    of users, client ids and addresses that has a quota; () for None."""
    if declared is None:
        return ()
    address = declared.default_ip
    found = {
        QuotaEntity(user=DEFAULT): values_of(declared.default_user),
        QuotaEntity(client_id=DEFAULT): values_of(declared.default_client_id),
    }
    if address is not None:
        rate = float(address.connections_per_second)
        found[QuotaEntity(ip=DEFAULT)] = QuotaValues(connection_creation_rate=rate)
    return tuple(
        QuotaRow(entity=entity, values=values, owner=BY_CLUSTER)
        for entity, values in sorted(found.items(), key=lambda item: item[0].order)
        if values != QuotaValues()
    )
