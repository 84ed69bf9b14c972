"""Guards of logins by passwords and by certificates, rules and quotas."""

from __future__ import annotations

from plimsoll_sim.mutants.mutant import Edit, Mutant

CORE = "core/plimsoll_core/"
BROKER = "broker_image/plimsoll_broker/"
OPERATOR = "operator/plimsoll_operator/"
PROFILE, CERTIFICATES = "revocation", "certificates"

RIGHTS: tuple[Mutant, ...] = (
    Mutant(
        name="decides-by-former-rules",
        rule="a remembered decision is of the rules that are committed now",
        scenarios=("U01",),
        profile=PROFILE,
        edits=(
            Edit(BROKER + "security/authority.py", "if known[0] is not security:", "if False:"),
        ),
    ),
    Mutant(
        name="tells-of-anothers-topics",
        rule="a remembered list of topics is told to nobody else",
        scenarios=("U01",),
        profile=PROFILE,
        edits=(
            Edit(
                BROKER + "security/visible_topics.py",
                "found = self._known.get((principal, host))",
                "found = next(iter(self._known.values()), None)",
            ),
        ),
    ),
    Mutant(
        name="waits-with-former-rights",
        rule="a fetch that waits is decided again when it is answered",
        scenarios=("U02",),
        profile=PROFILE,
        edits=(
            Edit(
                BROKER + "handlers/fetch_poll.py",
                "self._denied(one) or one.refused or self._read(one, left)",
                "(self.future is None and self._denied(one)) or one.refused"
                " or self._read(one, left)",
            ),
        ),
    ),
    Mutant(
        name="trusts-what-brokers-let-through",
        rule="the controller decides a client's rights on the committed image",
        scenarios=("U03",),
        profile=PROFILE,
        by_chance=False,  # none of 12 runs: what a tenant makes is there for the rest of a run
        edits=(
            Edit(
                CORE + "controller/decide.py", "refused_again(image, request) or _RULES", "_RULES"
            ),
        ),
    ),
    Mutant(
        name="what-names-nobody-is-done",
        rule="where rights are enforced the controller changes nothing in nobody's name",
        scenarios=("U12",),
        profile=PROFILE,
        by_chance=False,  # no random run turns rights on
        edits=(
            Edit(
                CORE + "controller/security/reauthorization.py",
                "return _NOBODY if enforced else None",
                "return None",
            ),
            # Like a former broker, which named no principal if it enforced no rights.
            Edit(
                BROKER + "handlers/forward.py",
                "    asks = context.connection\n",
                "    return None\n    asks = context.connection\n",
            ),
        ),
    ),
    Mutant(
        name="denied-is-not-seen",
        rule="a Deny denies its own operation, and implies nothing",
        scenarios=("U01",),
        profile=PROFILE,
        edits=(
            Edit(
                CORE + "security/acl_index.py",
                "allowing, denying = _ALLOWS[operation], _DENIES[operation]",
                "allowing, denying = _ALLOWS[operation], _ALLOWS[operation]",
            ),
        ),
    ),
    Mutant(
        name="former-password-for-good",
        rule="the password before is good until its time",
        scenarios=("U04",),
        profile=PROFILE,
        by_chance=False,  # none of 12 runs: few logins by passwords that were good once
        edits=(
            Edit(
                CORE + "security/scram.py",
                "if previous is None or now_ms >= previous.until_ms:",
                "if previous is None:",
            ),
        ),
    ),
    Mutant(
        name="revoked-and-still-there",
        rule="whose login is not good any more is cut off",
        scenarios=("U04",),
        profile=PROFILE,
        edits=(
            Edit(
                BROKER + "security/authority.py",
                "        connection.cut_off(why)",
                "        pass",
            ),
        ),
    ),
    Mutant(
        name="disabled-logs-in",
        rule="a user who is disabled may not log in",
        scenarios=("U04",),
        profile=PROFILE,
        edits=(
            Edit(
                CORE + "security/state.py",
                "return declared is not None and declared.disabled",
                "return False",
            ),
        ),
    ),
    Mutant(
        name="answers-strangers",
        rule="before a login nothing but the login is answered",
        scenarios=("U05",),
        profile=PROFILE,
        edits=(
            Edit(
                CORE + "security/sasl.py",
                "if api_key not in BEFORE_LOGIN or self._asked > REQUESTS_MAX:",
                "if self._asked > REQUESTS_MAX:",
            ),
        ),
    ),
    Mutant(
        name="throttled-and-still-read",
        rule="whoever used too much is not read from for as long as it was told",
        scenarios=("U06",),
        profile=PROFILE,
        edits=(Edit(BROKER + "server/muting.py", "if not throttle_ms:", "if True:"),),
    ),
    Mutant(
        name="allows-ahead-without-counting",
        rule="what a connection is allowed ahead counts as used",
        scenarios=("U13",),
        profile=PROFILE,
        edits=(
            Edit(
                CORE + "quotas/rates.py",
                "        allowance.left += amount\n        self._newest[2] += amount\n"
                "        self._total += amount\n",
                "        allowance.left += amount\n",
            ),
            Edit(
                CORE + "quotas/rates.py",
                "            newest[2] -= allowance.left\n"
                "            self._total -= allowance.left\n",
                "",
            ),
        ),
        by_chance=False,  # who has a quota in random runs has too small a one to be allowed any
    ),
    Mutant(
        name="revoked-certificate-stays",
        rule="who was let in by a certificate that is committed no more is cut off",
        scenarios=("U07",),
        profile=CERTIFICATES,
        edits=(
            Edit(
                CORE + "security/state.py",
                "if proof.own and self.certificate_users.get(proof.sha256) != proof.user:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="session-outlives-its-certificate",
        rule="a session ends with the certificate that it was begun by",
        scenarios=("U08",),
        profile=CERTIFICATES,
        edits=(
            Edit(
                BROKER + "security/authority.py",
                "        if identity.until_ms is not None:\n            left_s",
                "        if identity.until_ms is not None and identity.certificate is None:\n"
                "            left_s",
            ),
        ),
    ),
    Mutant(
        name="replaced-authority-is-believed",
        rule="sessions end with the authority whose certificates they were begun by",
        scenarios=("U09",),
        profile=CERTIFICATES,
        edits=(
            Edit(
                BROKER + "security/authority.py",
                "unchanged &= before.authorities == new.security.authorities",
                "unchanged &= True",
            ),
        ),
    ),
    Mutant(
        name="forgets-the-clients-authority-too-soon",
        rule="an authority of clients is believed until what it signed is over",
        scenarios=("U10",),
        profile="clients' authority",
        edits=(
            Edit(
                OPERATOR + "reconcile/cluster/authorities.py",
                "former_ms = rotation.CLIENT_OVERLAP_MS",
                "former_ms = None",
            ),
        ),
    ),
)
