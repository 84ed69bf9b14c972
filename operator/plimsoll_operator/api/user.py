"""`User` (plu): declares a user of a LogCluster, how it logs in, and its rights."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_core.security.acl import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPermission,
    Pattern,
    ResourceType,
)
from plimsoll_core.security.tokens import account_user
from plimsoll_operator.api.labels import derived_name
from plimsoll_operator.api.meta import (
    Api,
    ClusterObject,
    ClusterRef,
    Conditions,
    Count,
    ObjectName,
    Short,
    described,
)
from plimsoll_operator.api.quotas import DeclaredClientQuotas

UserName = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._:@-]+$")]
Operation = Literal[
    "All",
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "ClusterAction",
    "DescribeConfigs",
    "AlterConfigs",
    "IdempotentWrite",
]


class PasswordSecret(Api, frozen=True, kw_only=True):
    """A Secret of this namespace that holds the password."""

    name: ObjectName
    key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=253)] | None, described("Default password.")
    ] = None


class Scram(Api, frozen=True, kw_only=True):
    """A password with which the user logs in by SASL/SCRAM."""

    mechanisms: Annotated[
        Annotated[
            tuple[Literal["ScramSha256", "ScramSha512"], ...],
            Meta(min_length=1, max_length=2, extra_json_schema={"x-kubernetes-list-type": "set"}),
        ]
        | None,
        described("Accepted SCRAM mechanisms; default is both."),
    ] = None
    overlap_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=2_592_000)] | None,
        described(
            "Seconds for which the previous password remains valid after a change; default 0."
        ),
    ] = None
    password_secret: Annotated[
        PasswordSecret | None,
        described(
            "The Secret that holds the password; reread each minute. Unset: the operator "
            "generates a password and writes it to the user's Secret."
        ),
    ] = None


class Account(Api, frozen=True, kw_only=True):
    """A ServiceAccount of this namespace. Its pods log in with their ServiceAccount token."""

    name: ObjectName


class UserCertificate(Api, frozen=True, kw_only=True):
    """A client certificate that the operator issues and writes to the user's Secret. It is renewed
    after two thirds of its validity; the previous one remains valid until it expires. Delete the
    Secret to replace the certificate at once and invalidate earlier ones."""

    validity_days: Annotated[
        Annotated[int, Meta(ge=1, le=365)] | None,
        described("Validity of the certificate in days; default 90."),
    ] = None


class ExternalCertificate(Api, frozen=True, kw_only=True):
    """A client certificate of an authority in the LogCluster's
    spec.certificates.clients.externalCas."""

    subject: Annotated[
        str,
        Meta(
            min_length=3,
            max_length=240,
            pattern=r"^[A-Z0-9.]+=.*$",
            description=(
                "The certificate's distinguished name as Java writes it (RFC 2253), such as "
                "CN=orders,O=Shop; it is the user name."
            ),
        ),
    ]


class Authentication(Api, frozen=True, kw_only=True):
    """How the user logs in. Exactly one field is set."""

    scram: Scram | None = None
    service_account: Account | None = None
    tls: UserCertificate | None = None
    tls_external: ExternalCertificate | None = None


class RuleResource(Api, frozen=True, kw_only=True):
    """The resource that a rule is about."""

    type: Literal["Topic", "Group", "Cluster", "TransactionalId"]
    name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=249)] | None,
        described("The resource's name, or * for all; required except for Cluster."),
    ] = None
    pattern: Annotated[
        Literal["Literal", "Prefixed"] | None,
        described("Literal (default): this name. Prefixed: all names that begin with it."),
    ] = None


class Rule(Api, frozen=True, kw_only=True):
    """A rule (ACL) that allows or denies operations on a resource."""

    resource: RuleResource
    operations: Annotated[
        tuple[Operation, ...],
        Meta(min_length=1, max_length=11, extra_json_schema={"x-kubernetes-list-type": "set"}),
    ]
    permission: Annotated[
        Literal["Allow", "Deny"] | None,
        described("Allow (default) or Deny; a Deny overrides every Allow."),
    ] = None
    host: Annotated[
        Annotated[str, Meta(min_length=1, max_length=253)] | None,
        described("The client's address; unset or *: any address."),
    ] = None


class UserSpec(Api, frozen=True, kw_only=True):
    """The desired state of the user."""

    cluster_ref: ClusterRef
    user_name: Annotated[
        UserName | None,
        described(
            "The user name; default is the object's name, prefixed with <namespace>. if "
            "the LogCluster is in another namespace. Immutable."
        ),
    ] = None
    authentication: Annotated[
        Authentication | None,
        described(
            "How the user logs in: exactly one of these. Unset: the operator manages only the "
            "rules and quotas; Kafka's tools set the password."
        ),
    ] = None
    acls: (
        Annotated[
            tuple[Rule, ...],
            Meta(max_length=256, extra_json_schema={"x-kubernetes-list-type": "atomic"}),
        ]
        | None
    ) = None
    quotas: DeclaredClientQuotas | None = None
    secret_name: Annotated[
        ObjectName | None,
        described("Name of the Secret with the credentials; default <name>-kafka."),
    ] = None
    disabled: Annotated[
        bool | None,
        described("true: the user cannot log in and open sessions are closed; rules stay."),
    ] = None


class SecretStatus(Api, frozen=True, kw_only=True):
    """The Secret that holds the user's credentials."""

    name: Short


class UserStatus(Api, frozen=True, kw_only=True):
    """Observed state of the user. Written by the operator, which never reads it back."""

    observed_generation: Count | None = None
    principal: Annotated[str, Meta(max_length=1024)] | None = None
    secret: SecretStatus | None = None
    acls: Count | None = None
    conditions: Conditions = ()


class User(ClusterObject, frozen=True, kw_only=True):
    """A user of a LogCluster."""

    spec: UserSpec

    @property
    def user_name(self) -> str:
        """Return the name with which the user is authenticated, as brokers and rules know it."""
        account = self.service_account
        if account is not None:
            return account_user(self.metadata.namespace, account)
        stated = self.spec.authentication
        if stated is not None and stated.tls_external is not None:
            return stated.tls_external.subject
        own = self.cluster_key[0] == self.metadata.namespace
        name = self.metadata.name if own else f"{self.metadata.namespace}.{self.metadata.name}"
        return self.spec.user_name or name

    @property
    def scram(self) -> Scram | None:
        """Return the password that the spec declares, or None if the user logs in otherwise."""
        return None if self.spec.authentication is None else self.spec.authentication.scram

    @property
    def certificate(self) -> UserCertificate | None:
        """Return the operator-issued certificate that the spec declares, or None if the user logs
        in otherwise."""
        return None if self.spec.authentication is None else self.spec.authentication.tls

    @property
    def has_secret(self) -> bool:
        """Return True if the operator writes this user's credentials into a Secret."""
        return self.scram is not None or self.certificate is not None

    @property
    def by_certificate(self) -> bool:
        """Return True if the user logs in with a client certificate, from the operator or from an
        external authority."""
        stated = self.spec.authentication
        return stated is not None and bool(stated.tls or stated.tls_external)

    @property
    def service_account(self) -> str | None:
        """Return the name of the ServiceAccount as which the user logs in, or None if the user logs
        in otherwise."""
        stated = self.spec.authentication and self.spec.authentication.service_account
        return stated.name if stated else None

    @property
    def principal(self) -> str:
        return f"User:{self.user_name}"

    @property
    def secret_name(self) -> str:
        return self.spec.secret_name or derived_name(self.metadata.name, "-kafka")

    @property
    def acls(self) -> tuple[Acl, ...]:
        """Return the user's rules in the brokers' form: one for each operation."""
        return tuple(acl for _, acl in self.rules)

    @property
    def rules(self) -> tuple[tuple[int, Acl], ...]:
        """Return the user's rules, one for each operation, each with its index in `spec.acls`."""
        return tuple(
            (
                number,
                Acl(
                    resource=ResourceType(rule.resource.type),
                    name=CLUSTER_NAME
                    if rule.resource.type == "Cluster"
                    else rule.resource.name or "",
                    pattern=Pattern(rule.resource.pattern or "Literal"),
                    principal=self.principal,
                    host=rule.host or "*",
                    operation=AclOperation(operation),
                    permission=AclPermission(rule.permission or "Allow"),
                ),
            )
            for number, rule in enumerate(self.spec.acls or ())
            for operation in rule.operations
        )
