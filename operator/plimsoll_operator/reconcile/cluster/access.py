"""Commits what a LogCluster declares about access: authorization, quotas, and token issuers.

`declare_authorization` and `declare_quotas` commit what the spec states; `secure_condition` says if
the cluster is secure. `reconcile` reads the keys of the token issuers with each reconcile of the
cluster, and once a minute while an issuer is declared, and commits them for the brokers, so that a
new key is known before much is signed with it and a withdrawn key ends its sessions. If keys are
unreadable, those committed before stay; keys of another issuer or another ConfigMap do not. An
invalid issuer is left out and delays no other.
"""

from __future__ import annotations

import secrets

import msgspec
from msgspec.structs import replace

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.controller.security.trusted_issuers import malformed_issuer
from plimsoll_core.errors import Reason
from plimsoll_core.messages.requests import Refused
from plimsoll_core.messages.security import DeclareAuthorization, DeclareQuotas, DeclareTokenIssuers
from plimsoll_core.quotas.state import BY_CLUSTER
from plimsoll_core.security.inside import InsideMode
from plimsoll_core.security.state import Authorization, Mode
from plimsoll_core.security.tokens import TokenIssuer, TokenKey
from plimsoll_operator.api.authorization import committed
from plimsoll_operator.api.cluster_ids import kafka_id
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.quotas import rows_of
from plimsoll_operator.api.token_issuers import KEY_DEFAULT, SERVICE_ACCOUNTS, DeclaredIssuer
from plimsoll_operator.kube.errors import ApiError, NotFound, Unavailable
from plimsoll_operator.kube.kube_api import OPENID_CONFIGURATION, OPENID_KEYS
from plimsoll_operator.kube.resources import CONFIG_MAPS
from plimsoll_operator.pki.token_keys import KEYS_MAX, keys_of
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource

DISGUISE_BYTES = 32


async def declare_authorization(term: Term, result: PassResult, cluster: LogCluster) -> None:
    """Commit the authorization that the spec states, if it differs from the committed one. A
    refusal stalls the LogCluster."""
    if "authorization" in term.missing:
        return  # the spec states it, but it is unreadable
    known = term.image.security.authorization
    declared = cluster.spec.authorization
    asks = any(listener.authentication for listener in term.image.listeners)
    if declared is None and known == Authorization() and not asks:
        result.unstall(StallSource.AUTHORIZATION)
        return
    disguise = known.disguise or secrets.token_bytes(DISGUISE_BYTES)
    wanted = committed(declared, disguise)
    if wanted != known:
        answer = await term.ask(DeclareAuthorization(authorization=wanted))
        if isinstance(answer, Refused):
            why = Cause(reason=answer.reason, message=answer.message)
            result.stall(StallSource.AUTHORIZATION, why)
            return
    result.unstall(StallSource.AUTHORIZATION)


def secure_condition(image: ClusterImage, waits: str = "") -> Condition | None:
    """Return the condition Secure. If the cluster is not secure, it names the first gap in a fixed
    order, the widest first. Return None if the spec asks for no protection at all.

    `waits`: a sentence on why the declared mode of internal TLS is not reached yet, "" if it is.
    """
    found = _widest(image, waits)
    if found is None or found.status == "True" or not waits:
        return found
    return replace(found, message=f"{found.message} {waits}")


def _widest(image: ClusterImage, waits: str) -> Condition | None:
    access = image.security.authorization
    asks = [one.name for one in image.listeners if one.authentication]
    closed_inside = image.inside.mode is InsideMode.REQUIRED
    if access.mode is Mode.OFF and not asks and image.inside.mode is InsideMode.OFF and not waits:
        return None
    open_to_all = [one.name for one in image.listeners if not one.authentication]
    if open_to_all or not image.listeners:
        names = ", ".join(open_to_all) or "the default one"
        text = (
            f"The cluster is not fully secured: listeners without authentication ({names}) "
            "accept anonymous clients."
        )
        return condition("Secure", False, "AnonymousListener", text)
    if access.mode is not Mode.ENFORCE:
        text = (
            f"The cluster is not secured: spec.authorization.mode is {access.mode.value}, so "
            "every user may do everything."
        )
        return condition("Secure", False, "AuthorizationOff", text)
    if not closed_inside:
        text = (
            "The cluster is not fully secured: clients must log in and need rights, but "
            "connections among brokers and the operator are not authenticated "
            f"(spec.certificates.internal.mode is {image.inside.mode.value} so far)."
        )
        return condition("Secure", False, "PlaintextInside", text)
    if plaintext := [one.name for one in image.listeners if not one.tls]:
        text = (
            "The cluster is not fully secured: traffic of listeners without tls "
            f"({', '.join(plaintext)}) is not encrypted."
        )
        return condition("Secure", False, "PlaintextListener", text)
    if access.allow_everyone_if_no_acl:
        text = (
            "The cluster is not fully secured: every user has all rights on resources that no "
            "ACL rule names (allowEveryoneIfNoAcl)."
        )
        return condition("Secure", False, "AllowEveryone", text)
    text = (
        "The cluster is secured: clients log in over TLS and need rights, and brokers and the "
        "operator authenticate each other."
    )
    return condition("Secure", True, "Closed", text)


LOOK_MS = 60_000
WITHDRAWN_AFTER_MS = 2 * LOOK_MS
"""For how many milliseconds a committed key must be missing from what the API server publishes
before it counts as withdrawn. While keys rotate, several API servers may publish different ones."""
NO_KEYS = "TokenKeysMissing"
REFUSED = Reason.InvalidRequest.name
KEPT = "; until then brokers use the last valid keys, if any, and refuse tokens signed with others."


_Place = tuple[str, str]
"""Place from which the keys of an issuer are read: (name of a ConfigMap, key in it)."""


class _KeyPlaces(dict[str, _Place]):
    """The places from which the committed keys of each issuer were read, by the issuer's name."""


class _MissingSince(dict[TokenKey, int]):
    """Time (monotonic, ms) since which each committed key for ServiceAccount tokens is no longer
    published."""


class _NoKeys(Exception):
    """Raised if the keys of an issuer cannot be read. Its text is a sentence."""


def audiences_of(term: Term) -> tuple[str, ...]:
    """Return the audiences that a ServiceAccount's token may have. The first is known before the
    LogCluster is created, the second contains the cluster id."""
    namespace, name = term.key
    return f"plimsoll:{namespace}/{name}", f"plimsoll:{kafka_id(term.cluster_id)}"


async def reconcile(term: Term, result: PassResult, cluster: LogCluster) -> None:
    """Read the keys of all token issuers and commit them. Faults stall the LogCluster. Raise
    Unavailable if the API server does not answer."""
    known = {one.name: one for one in term.image.security.issuers}
    asks = {login for one in cluster.listeners for login in one.authentication or ()}
    declared = cluster.spec.token_issuers or ()
    wanted: list[TokenIssuer] = []
    problems: list[Cause] = []
    if "ServiceAccount" in asks:
        await _add(SERVICE_ACCOUNTS, None, term, known, wanted, problems)
    for number, one in enumerate(declared):
        if twin := _twin(one, declared[:number]):
            text = (
                f"Token issuer {one.name} is ignored: token issuer {twin} has the same name or "
                "issuer. Change or remove one of them in spec.tokenIssuers."
            )
            problems.append(Cause(reason=REFUSED, message=text))
            continue
        await _add(one.name, one, term, known, wanted, problems)
    if not wanted and not known and not problems:
        result.unstall(StallSource.TOKENS)
        return
    answer = await term.ask(DeclareTokenIssuers(issuers=tuple(wanted)))
    if not isinstance(answer, Refused):
        _note_places(term, declared)
    if isinstance(answer, Refused) and not _comes_by_itself(cluster, answer):
        result.stall(StallSource.TOKENS, Cause(reason=answer.reason, message=answer.message))
    elif problems:
        text = " ".join(one.message for one in problems)
        result.stall(StallSource.TOKENS, Cause(reason=problems[0].reason, message=text))
    else:
        result.unstall(StallSource.TOKENS)
    if wanted or problems:
        result.add_later(Work(Task.CLUSTER, term.key), LOOK_MS)


def _comes_by_itself(cluster: LogCluster, answer: Refused) -> bool:
    """Return True if the controller refused only because the metadata version is too old, and the
    spec does not pin that version. Another pass follows once a newer version is finalised, so
    nothing has to be reported."""
    unpinned = cluster.spec.metadata_version is None
    return unpinned and answer.known_reason is Reason.MetadataTooOld


async def _add(
    name: str,
    declared: DeclaredIssuer | None,
    term: Term,
    known: dict[str, TokenIssuer],
    wanted: list[TokenIssuer],
    problems: list[Cause],
) -> None:
    try:
        found = await (_accounts(term) if declared is None else _declared(term, declared))
    except _NoKeys as problem:
        problems.append(Cause(reason=NO_KEYS, message=f"{problem}{KEPT}"))
        if name in known and (kept := _kept(term, known[name], declared)) is not None:
            wanted.append(kept)
        return
    if text := malformed_issuer(found):
        effect = (
            "brokers use its last valid keys" if declared is None else "brokers refuse its tokens"
        )
        message = f"Token issuer {name} is invalid, so {effect}: {text}"
        problems.append(Cause(reason=REFUSED, message=message))
        if declared is None and name in known:
            wanted.append(known[name])  # the answer is wrong; the spec did not change
        return
    wanted.append(found)


def _kept(term: Term, known: TokenIssuer, declared: DeclaredIssuer | None) -> TokenIssuer | None:
    """Return the committed keys of an issuer together with its present declaration, for use while
    its keys cannot be read. Return None if the committed keys are of another issuer or another
    ConfigMap."""
    if declared is None:
        return known
    place = _place(declared)
    was_there = term.kept(_KeyPlaces, _KeyPlaces).get(declared.name, place) == place
    stated = _stated(declared, known.keys)
    if stated.issuer != known.issuer or not was_there or malformed_issuer(stated):
        return None
    return stated


def _note_places(term: Term, declared: tuple[DeclaredIssuer, ...]) -> None:
    """Remember where the keys that were just committed were read from."""
    places = term.kept(_KeyPlaces, _KeyPlaces)
    places.clear()
    places.update({one.name: _place(one) for one in declared})


def _place(declared: DeclaredIssuer) -> _Place:
    return declared.keys_config_map.name, declared.keys_config_map.key or KEY_DEFAULT


def _twin(one: DeclaredIssuer, before: tuple[DeclaredIssuer, ...]) -> str | None:
    """Return the name of an earlier issuer with the same name or issuer URL, or None. A token could
    be of either."""
    same = (other.name for other in before if one.name == other.name or one.issuer == other.issuer)
    return next(same, None)


async def _accounts(term: Term) -> TokenIssuer:
    """Return the API server as a token issuer, with its keys: it signs ServiceAccount tokens. Raise
    `_NoKeys` if it publishes none."""
    try:
        configuration = await term.kube.document(OPENID_CONFIGURATION)
        keys = keys_of(await term.kube.document(OPENID_KEYS))
    except Unavailable:
        raise
    except ApiError as error:
        raise _NoKeys(
            "The operator cannot read the keys with which the API server signs ServiceAccount "
            f"tokens, and tries again every minute ({error})"
        ) from error
    issuer = configuration.get("issuer")
    if not keys or not isinstance(issuer, str) or not issuer:
        raise _NoKeys(
            "The API server publishes no issuer or no usable public key for ServiceAccount tokens "
            f"at {OPENID_CONFIGURATION} and {OPENID_KEYS}, so brokers get no keys to check such "
            "tokens; correct its options --service-account-issuer and --service-account-key-file"
        )
    return TokenIssuer(
        name=SERVICE_ACCOUNTS,
        login="ServiceAccount",
        issuer=issuer,
        audiences=audiences_of(term),
        keys=_lately_published(term, issuer, keys),
    )


def _lately_published(
    term: Term, issuer: str, published: tuple[TokenKey, ...]
) -> tuple[TokenKey, ...]:
    """Return the keys that the API server publishes, and committed ones that have been missing for
    less than `WITHDRAWN_AFTER_MS`, sorted by key id, at most `KEYS_MAX`."""
    now_ms, missing = term.monotonic_ms(), term.kept(_MissingSince, _MissingSince)
    mine = (SERVICE_ACCOUNTS, issuer)
    issuers = (one for one in term.image.security.issuers if (one.name, one.issuer) == mine)
    known = {key for one in issuers for key in one.keys}
    since = {key: missing.get(key, now_ms) for key in known - set(published)}
    missing.clear()
    missing.update(since)
    ids = {key.key_id for key in published}
    kept = [key for key, at_ms in since.items() if now_ms - at_ms < WITHDRAWN_AFTER_MS]
    kept = sorted((key for key in kept if key.key_id not in ids), key=lambda key: key.key_id)
    return tuple(sorted([*published, *kept][:KEYS_MAX], key=lambda key: key.key_id))


async def _declared(term: Term, declared: DeclaredIssuer) -> TokenIssuer:
    named, key = _place(declared)
    begun = f"Token issuer {declared.name}: ConfigMap {named}"
    try:
        found = await term.kube.get(CONFIG_MAPS, term.key[0], named)
    except NotFound as error:
        raise _NoKeys(f"{begun} does not exist; create it") from error
    try:
        keys = keys_of(msgspec.json.decode((found.get("data") or {}).get(key, "")))
    except (msgspec.DecodeError, RecursionError) as error:
        raise _NoKeys(f"{begun} has no valid JSON under the key {key}; correct it") from error
    if not keys:
        raise _NoKeys(f"{begun} contains no usable public key under the key {key}; correct it")
    return _stated(declared, keys)


def _stated(declared: DeclaredIssuer, keys: tuple[TokenKey, ...]) -> TokenIssuer:
    prefix = declared.principal_prefix
    return TokenIssuer(
        name=declared.name,
        login="OAuth",
        issuer=declared.issuer,
        audiences=(declared.audience,),
        user_claim=declared.principal_claim or "sub",
        user_prefix=f"{declared.name}:" if prefix is None else prefix,
        keys=keys,
    )


async def declare_quotas(term: Term, result: PassResult, cluster: LogCluster) -> None:
    """Commit the quotas that the spec states, if they differ from the committed ones. A refusal
    stalls the LogCluster."""
    if "quotas" in term.missing:
        return  # the spec states them, but they are unreadable
    wanted = rows_of(cluster.spec.quotas)
    if wanted != tuple(term.image.quotas.of_owner(BY_CLUSTER)):
        answer = await term.ask(DeclareQuotas(rows=wanted))
        if isinstance(answer, Refused):
            result.stall(StallSource.QUOTAS, Cause(reason=answer.reason, message=answer.message))
            return
    result.unstall(StallSource.QUOTAS)
