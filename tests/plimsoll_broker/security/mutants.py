"""The tests of the tests: each guard of logins and rights is taken out, and a test must notice.

`python -m tests.plimsoll_broker.security.mutants` runs each mutant's tests, which must fail; the
unit tier checks that each mutant's text is still there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from plimsoll_sim.mutants.mutant import Edit, Mutant, become

BROKER = "broker_image/plimsoll_broker/"
CORE = "core/plimsoll_core/"
HERE = "tests/plimsoll_broker/security/"
TIMEOUT_S = 300

MUTANTS: tuple[tuple[Mutant, str], ...] = (
    (
        Mutant(
            name="revoked-certificate-stays-in",
            rule="whose certificate is not committed any more is cut off",
            edits=(
                Edit(
                    BROKER + "security/authority.py",
                    "return None if shown is not None and self.security.believes(shown) else 0",
                    "return None",
                ),
            ),
        ),
        HERE + "test_certificate_logins.py",
    ),
    (
        Mutant(
            name="certificate-outlives-its-end",
            rule="a session ends with its certificate",
            edits=(
                Edit(
                    BROKER + "security/authority.py",
                    'self._cut_off(connection, identity, "certificate-expired")',
                    "pass",
                ),
            ),
        ),
        HERE + "test_certificate_logins.py",
    ),
    (
        Mutant(
            name="withdrawn-authority-is-believed",
            rule="a login is good while the authority of its certificate is committed",
            edits=(
                Edit(
                    CORE + "security/state.py",
                    "if authority is None or (authority.name == OWN_AUTHORITY) != proof.own:",
                    "if False:",
                ),
            ),
        ),
        HERE + "test_certificate_logins.py",
    ),
    (
        Mutant(
            name="certificate-is-not-asked-for",
            rule="where a certificate is the only login nobody is let in without",
            edits=(
                Edit(
                    "core/plimsoll_net/tls_policy.py",
                    "ssl.CERT_REQUIRED if clients.required else ssl.CERT_OPTIONAL",
                    "ssl.CERT_OPTIONAL",
                ),
            ),
        ),
        HERE + "test_certificate_logins.py",
    ),
    (
        Mutant(
            name="parked-fetch-is-not-decided-again",
            rule="a fetch is decided at each look",
            edits=(
                Edit(
                    BROKER + "handlers/fetch_poll.py",
                    "self._denied(one) or one.refused or self._read(one, left)",
                    "(self.future is None and self._denied(one)) or one.refused"
                    " or self._read(one, left)",
                ),
            ),
        ),
        HERE + "test_data_rights.py",
    ),
    (
        Mutant(
            name="parked-join-is-not-decided-again",
            rule="answers of groups are decided again when they are told",
            edits=(
                Edit(
                    BROKER + "handlers/groups/asking.py",
                    "_NOT_AUTHORIZED if self._api.refuses(request, one.op) else answer",
                    "answer",
                ),
            ),
        ),
        HERE + "test_group_rights.py",
    ),
    (
        Mutant(
            name="decisions-outlive-their-rules",
            rule="a remembered decision is of the rules that are committed now",
            edits=(
                Edit(
                    BROKER + "security/authority.py",
                    "if known[0] is not security:",
                    "if False:",
                ),
            ),
        ),
        HERE + "test_guards.py",
    ),
    (
        Mutant(
            name="metadata-without-visibility",
            rule="asked for all topics, a client is told of those that it may describe",
            edits=(
                Edit(
                    BROKER + "handlers/security/guards.py",
                    "verdict = _all_metadata(asking) if all_of_them",
                    "verdict = asking.pass_on() if all_of_them",
                ),
            ),
        ),
        HERE + "test_guards.py",
    ),
    (
        Mutant(
            name="visible-topics-of-whoever-came-first",
            rule="what is remembered of visible topics is one principal's",
            edits=(
                Edit(
                    BROKER + "security/visible_topics.py",
                    "found = self._known.get((principal, host))",
                    "found = next(iter(self._known.values()), None)",
                ),
            ),
        ),
        HERE + "test_guards.py",
    ),
    (
        Mutant(
            name="visible-topics-of-former-rules",
            rule="what is remembered of visible topics is of the rules that are committed now",
            edits=(
                Edit(
                    BROKER + "security/visible_topics.py",
                    "return found if found.security is security else None",
                    "return found",
                ),
            ),
        ),
        HERE + "test_guards.py",
    ),
    (
        Mutant(
            name="deny-implies-describe",
            rule="a Deny implies nothing",
            edits=(
                Edit(
                    CORE + "security/acl_index.py",
                    "_DENIES = {operation: _ALL | _BIT[operation] for operation in AclOperation}",
                    "_DENIES = dict(_ALLOWS)",
                ),
            ),
        ),
        "tests/plimsoll_core/security/test_acl_index.py",
    ),
    (
        Mutant(
            name="forwarded-is-not-decided-again",
            rule="the controller decides a client's rights on the committed image",
            edits=(
                Edit(
                    CORE + "controller/decide.py",
                    "refused_again(image, request) or _RULES",
                    "_RULES",
                ),
            ),
        ),
        "tests/plimsoll_core/controller/test_forwarded_rights.py",
    ),
    (
        Mutant(
            name="previous-password-for-ever",
            rule="the password before is good until its time",
            edits=(
                Edit(
                    CORE + "security/scram.py",
                    "if previous is None or now_ms >= previous.until_ms:",
                    "if previous is None:",
                ),
            ),
        ),
        "tests/plimsoll_core/security/test_sasl.py",
    ),
    (
        Mutant(
            name="revoked-stays-connected",
            rule="whose login is not good any more is cut off",
            edits=(
                Edit(
                    BROKER + "security/authority.py",
                    "        connection.cut_off(why)",
                    "        pass",
                ),
            ),
        ),
        HERE + "test_logins.py",
    ),
    (
        Mutant(
            name="answers-before-the-login",
            rule="before a login nothing but the login is answered",
            edits=(
                Edit(
                    CORE + "security/sasl.py",
                    "if api_key not in BEFORE_LOGIN or self._asked > REQUESTS_MAX:",
                    "if self._asked > REQUESTS_MAX:",
                ),
            ),
        ),
        HERE + "test_logins.py",
    ),
    (
        Mutant(
            name="unknown-user-is-told",
            rule="an unknown user is challenged like a known one",
            edits=(
                Edit(
                    CORE + "security/scram.py",
                    "    iterations = ITERATIONS_MIN\n",
                    "    iterations = ITERATIONS_MIN\n    if find(user) is None:\n"
                    '        raise ScramError("no such user")\n',
                ),
            ),
        ),
        "tests/plimsoll_core/security/test_sasl.py",
    ),
    (
        Mutant(
            name="objects-rules-go-with-clients",
            rule="what an object declares is changed through it alone",
            edits=(
                Edit(
                    CORE + "controller/security/acl_changes.py",
                    "if BY_CLIENT in security.acls[acl]:",
                    "if True:",
                ),
            ),
        ),
        "tests/plimsoll_core/controller/test_security.py",
    ),
    *(
        (Mutant(name=name, rule=rule, edits=(Edit(path, before, after),)), HERE + tests)
        for name, rule, path, before, after, tests in (
            (
                "token-without-an-end",
                "a token is good until its exp",
                CORE + "security/tokens.py",
                "if not claims.exp * 1000 > now_ms:",
                "if False:",
                "test_token_signatures.py",
            ),
            (
                "token-for-somebody-else",
                "a token names the cluster as its audience",
                CORE + "security/tokens.py",
                "if not set(audiences) & set(issuer.audiences):",
                "if False:",
                "test_token_signatures.py",
            ),
            (
                "signature-is-not-checked",
                "a token is signed by a committed key",
                BROKER + "security/token_signatures.py",
                "algorithms=[key.algorithm])",
                'algorithms=[key.algorithm], options={"verify_signature": False})',
                "test_token_signatures.py",
            ),
            (
                "expired-session-is-served",
                "a session that is over answers another login alone",
                CORE + "security/sasl.py",
                "over = self.expired and api_key not in BEFORE_LOGIN",
                "over = False",
                "test_token_logins.py",
            ),
            (
                "withdrawn-key-keeps-its-sessions",
                "a session lasts while the key that it came in by is believed",
                BROKER + "security/authority.py",
                "return None if self._is_believed(identity) else 0",
                "return None",
                "test_token_logins.py",
            ),
            (
                "verified-token-is-not-looked-at-again",
                "what was committed while a token was verified counts",
                BROKER + "handlers/security/logins.py",
                "proof = self._authority.still_good(proof)",
                "",
                "test_token_logins.py",
            ),
            (
                "contents-before-the-right",
                "nothing of a produce is opened before its right",
                BROKER + "handlers/produce.py",
                "denied = denied_at_once(context.rights, request)",
                "denied = denied_at_once(None, request)",
                "test_rights_before_contents.py",
            ),
            (
                "headers-before-the-right",
                "no header of a batch is read before its right",
                BROKER + "handlers/produce.py",
                "    request = _without_contents(request, denied)\n            new_logs",
                "    pass\n            new_logs",
                "test_rights_before_contents.py",
            ),
            (
                "fetch-looks-up-what-is-denied",
                "nothing is looked up before its right",
                BROKER + "handlers/fetch.py",
                "if rights is not None and name is not None and not rights.reads_quietly(name):",
                "if False:",
                "test_rights_before_contents.py",
            ),
            (
                "decisions-tell-what-exists",
                "what is remembered of denials does not tell what exists",
                BROKER + "security/authority.py",
                "there_is = allowed and kind is _TOPIC and self.there_is(name)",
                "there_is = kind is _TOPIC and self.there_is(name)",
                "test_remembered_decisions.py",
            ),
            (
                "groups-are-walked-for-strangers",
                "who may see no group has none looked at",
                BROKER + "handlers/groups/list_groups.py",
                "if rights is None or rights.sees_any(ResourceType.GROUP) or _sees_all(rights):",
                "if True:",
                "test_rights_before_contents.py",
            ),
            (
                "refusals-crowd-out-logins",
                "each decision has room of its own in the audit log",
                BROKER + "security/audit_log.py",
                "{one: LineRoom() for one in DECISIONS}",
                "dict.fromkeys(DECISIONS, LineRoom())",
                "test_audit_log.py",
            ),
            (
                "one-address-silences-all",
                "principals share the audit log's room",
                BROKER + "security/audit_log.py",
                "return network_of(self.host) if",
                "return self.decision if True or",
                "test_audit_log.py",
            ),
            (
                "every-issuer-everywhere",
                "a listener takes tokens of the issuers that it names",
                CORE + "security/state.py",
                "if one.login in authentication",
                "if one.login",
                "test_token_logins.py",
            ),
        )
    ),
)


def killed(number: int) -> bool:
    """Whether a test of it fails."""
    command = [sys.executable, "-m", __spec__.name, str(number)]  # type: ignore[name-defined]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return done.returncode == 1 and " failed" in done.stdout


def main(arguments: list[str]) -> int:
    if arguments:
        mutant, tests = MUTANTS[int(arguments[0])]
        become(mutant)
        import pytest

        return int(pytest.main(["-q", "-x", "--no-header", tests]))
    alive = 0
    for number, (mutant, tests) in enumerate(MUTANTS):
        dead = killed(number)
        alive += not dead
        print(f"{'killed' if dead else 'ALIVE '}  {mutant.name}  {Path(tests).name}", flush=True)
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
