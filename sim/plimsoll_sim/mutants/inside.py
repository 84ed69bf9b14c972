"""Guards of what brokers and operators show each other, and of how it is replaced."""

from __future__ import annotations

from plimsoll_sim.mutants.mutant import Edit, Mutant

CORE = "core/plimsoll_core/security/inside.py"
BROKER = "broker_image/plimsoll_broker/"
CONTROLLER = "operator/plimsoll_operator/controller/"
ROTATION = "operator/plimsoll_operator/pki/inside_rotation.py"
CLOCKS = "operator/plimsoll_operator/reconcile/certificate_time.py"
RECONCILE = "operator/plimsoll_operator/reconcile/cluster/inside.py"

INSIDE: tuple[Mutant, ...] = (
    Mutant(
        name="believes-any-certificate",
        rule="a broker's certificate is one that is committed, the newest or the one before",
        scenarios=("N05",),
        profile="intruder",
        edits=(Edit(CORE, "peer.sha256 not in inside.of(peer.broker_id):", "peer.sha256 == '':"),),
    ),
    Mutant(
        name="fetches-for-another-broker",
        rule="the follower is the broker that the certificate names, not the one the request says",
        scenarios=("N02",),
        profile="intruder",
        edits=(
            Edit(
                BROKER + "server/dispatch.py",
                "return peer is None or peer.broker_id == replica_id",
                "return True",
            ),
        ),
    ),
    Mutant(
        name="asks-for-another-broker",
        rule="a connection speaks to the controller for the broker that its certificate names",
        scenarios=("N02",),
        profile="intruder",
        edits=(
            Edit(
                CONTROLLER + "controller_server.py",
                "self._identity.is_known(self._peer.cluster_id, self._peer.broker_id)",
                "pass",
            ),
        ),
    ),
    Mutant(
        name="controller-answers-in-plaintext",
        rule="where certificates are required the controller answers nobody without",
        scenarios=("N02",),
        profile="intruder",
        edits=(
            Edit(
                CONTROLLER + "inside_server.py",
                'reason = PLAINTEXT if inside.mode is InsideMode.REQUIRED else ""',
                'reason = ""',
            ),
        ),
    ),
    Mutant(
        name="leader-answers-in-plaintext",
        rule="where certificates are required a leader answers no follower without",
        scenarios=("N02",),
        profile="intruder",
        edits=(
            Edit(
                BROKER + "inside.py",
                "return self._committed.mode is not InsideMode.REQUIRED",
                "return True",
            ),
        ),
    ),
    Mutant(
        name="connections-outlive-certificates",
        rule="a connection is closed with the certificate that it was opened with",
        scenarios=("N05",),
        profile="intruder",
        edits=(
            Edit(
                BROKER + "server/listener.py",
                "                session.close(reason)\n\n    async",
                "                pass\n\n    async",
            ),
        ),
    ),
    Mutant(
        name="signs-before-it-is-trusted",
        rule="an authority signs when every broker that takes part trusts it",
        scenarios=("N03",),
        profile="rotation",
        edits=(Edit(ROTATION, "sha256 in proofs.trusted", "sha256 != ''"),),
    ),
    Mutant(
        name="forgets-an-authority-too-soon",
        rule="an authority is trusted until no broker that takes part shows what it signed",
        scenarios=("N03",),
        profile="rotation",
        edits=(Edit(ROTATION, "return proofs.renewed", "return True"),),
    ),
    Mutant(
        name="forgets-a-certificate-too-soon",
        rule="a broker's certificate is good until the broker shows its next one",
        scenarios=("N05",),
        profile="calm rotation",
        edits=(Edit(RECONCILE, "keep = () if told == newest else others[:1]", "keep = ()"),),
    ),
    Mutant(
        name="believes-its-own-clock",
        rule="an authority is over when the API server's clock says so, too",
        scenarios=("N10", "U11"),
        profile="wrong clocks",
        edits=(Edit(CLOCKS, "now_ms - server_ms <= APART_MS", "now_ms != 0"),),
    ),
    Mutant(
        name="keeps-a-certificate-for-good",
        rule="the certificate before is refused once the broker shows its next one",
        scenarios=("N01", "N05"),
        profile="intruder",
        edits=(
            Edit(
                RECONCILE,
                "keep = () if told == newest else others[:1]",
                "keep = others[:1]",
            ),
        ),
    ),
    Mutant(
        name="an-old-cluster-is-closed-by-itself",
        rule="a cluster that was there before stays open until its owner says otherwise",
        scenarios=("N09",),
        profile="unstated",
        edits=(Edit(CORE, "is_new = not has_brokers", "is_new = True"),),
    ),
    Mutant(
        name="decides-anew-each-time",
        rule="what was decided of a new cluster is kept, also when it has brokers",
        scenarios=("N08",),
        profile="unstated",
        edits=(Edit(CORE, "if pinned is not None:", "if False:"),),
    ),
    Mutant(
        name="opens-a-cluster-without-status",
        rule="a cluster of which the log says that it is closed stays so when its status is lost",
        scenarios=("N08",),
        profile="unstated",
        edits=(
            Edit(
                CORE,
                "is_new or committed is not InsideMode.OFF:",
                "is_new:",
            ),
        ),
    ),
)
