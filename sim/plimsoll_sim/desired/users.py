"""Users that an administrator declares: their passwords and rules, and edits of them."""

from __future__ import annotations

import random

from msgspec.structs import replace

from plimsoll_operator.api.meta import ClusterRef
from plimsoll_operator.api.quotas import DeclaredClientQuotas
from plimsoll_operator.api.user import (
    Authentication,
    PasswordSecret,
    Rule,
    RuleResource,
    Scram,
    UserSpec,
)
from plimsoll_operator.kube.resources import USERS, Kind
from plimsoll_sim.desired.objects import AppliedObjects

TENANTS = ("alice", "bob")
GREEDY = "carol"
"""Name of a user that writes without pause, up to its quota."""
GREEDY_BYTES_PER_SECOND = 200
"""The write quota of that user until an administrator changes it."""
TENANT_TOPICS = ("payments", "invoices")
TOUCHED = "plimsoll.dev/touched"


def rule(*operations: str, name: str, denied: bool = False, prefixed: bool = False) -> Rule:
    """Return a rule for a topic."""
    return Rule(
        resource=RuleResource(type="Topic", name=name, pattern="Prefixed" if prefixed else None),
        operations=operations,  # type: ignore[arg-type]  # of Kafka's words
        permission="Deny" if denied else None,
    )


WHOLE = tuple(rule("All", name=topic, prefixed=True) for topic in TENANT_TOPICS)
RULES: tuple[tuple[Rule, ...], ...] = (
    WHOLE,
    (),
    (rule("Read", name="payments"),),
    (rule("Write", "Create", name="inv", prefixed=True),),
    (*WHOLE, rule("Read", "Write", name="payments", denied=True)),
    (*WHOLE, rule("Describe", name="invoices", denied=True)),
    (rule("Describe", name="*"), rule("Read", "Write", name="invoices")),
)
"""The sets of rules that an administrator gives to users."""


def _produced(bytes_per_second: int) -> DeclaredClientQuotas:
    return DeclaredClientQuotas(producer_bytes_per_second=str(bytes_per_second))


class EditedUsers:
    """An administrator's edits of the Users of one cluster, by any kind of login."""

    def __init__(self, objects: AppliedObjects) -> None:
        self._objects = objects
        # The number of annotations: each touch needs another value.
        self._touches = 0

    def touch(self, user: str) -> None:
        """Change an annotation of the User, so that it is reconciled at once instead of within a
        minute."""
        self._touch(USERS, user)

    def _touch(self, kind: Kind, name: str) -> None:
        self._touches += 1
        self._objects.annotate(kind, name, TOUCHED, str(self._touches))

    def change(self, user: str, **changes: object) -> None:
        """Change fields of the User's spec."""
        self._objects.edit(USERS, user, **changes)

    def disabled(self, user: str) -> bool:
        return bool(self._objects.get(USERS, user).spec.disabled)

    def change_rules(self, user: str, rng: random.Random) -> str:
        """Give the user one of `RULES`. Return a line for people."""
        chosen = rng.randrange(len(RULES))
        self.change(user, acls=RULES[chosen])
        return f"{user} has rules {chosen}"

    def toggle(self, user: str) -> str:
        """Disable the user, or enable it. Return a line for people."""
        self.change(user, disabled=not self.disabled(user))
        return f"{user} is {'disabled' if self.disabled(user) else 'enabled'}"


class DeclaredUsers(EditedUsers):
    """Users that log in with passwords."""

    def __init__(self, objects: AppliedObjects) -> None:
        super().__init__(objects)
        # Every password that a user could log in by, the newest last.
        self.passwords: dict[str, list[str]] = {}

    def declare(self, user: str, *, overlap_s: int | None = None) -> None:
        """Declare a user with all rules of a tenant."""
        self.set_password(user, f"first-of-{user}")
        greedy = user == GREEDY
        spec = UserSpec(
            cluster_ref=ClusterRef(name=self._objects.name),
            authentication=Authentication(
                scram=Scram(
                    mechanisms=("ScramSha512",),
                    overlap_seconds=overlap_s,
                    password_secret=PasswordSecret(name=f"{user}-password"),
                )
            ),
            acls=WHOLE,
            quotas=_produced(GREEDY_BYTES_PER_SECOND) if greedy else None,
        )
        self._objects.create(USERS, user, spec)

    def set_password(self, user: str, password: str) -> None:
        self._objects.put_secret(f"{user}-password", {"password": password.encode()})
        self.passwords.setdefault(user, []).append(password)
        if user in self._objects.names(USERS):
            self.touch(user)

    def set_quota(self, user: str, bytes_per_second: int) -> None:
        """Set the quota of the bytes that the user writes."""
        self.change(user, quotas=_produced(bytes_per_second))

    def quota(self, user: str) -> int:
        """Return the user's write quota in bytes a second. The user must have one."""
        return int(self._objects.get(USERS, user).spec.quotas.producer_bytes_per_second)

    def set_overlap(self, user: str, seconds: int | None) -> None:
        spec = self._objects.get(USERS, user).spec
        scram = replace(spec.authentication.scram, overlap_seconds=seconds)
        self.change(user, authentication=Authentication(scram=scram))


def change_anything(users: DeclaredUsers, rng: random.Random) -> str:
    """Make one random change to a user, as an administrator does; return a line for people."""
    user = rng.choice(TENANTS)
    number = rng.randrange(10)
    if number < 5:
        return users.change_rules(user, rng)
    if number < 7:
        return users.toggle(user)
    overlap_s = rng.choice((None, 1, 5))
    users.set_overlap(user, overlap_s)
    users.set_password(user, f"password-{len(users.passwords[user])}-of-{user}")
    return f"{user} has another password; the one before is good for {overlap_s or 0} s"
