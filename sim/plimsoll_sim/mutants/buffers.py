"""Mutants of guards against writing more than the peer reads."""

from __future__ import annotations

from plimsoll_sim.mutants.mutant import Edit, Mutant

BROKER = "broker_image/plimsoll_broker/"
SESSION = BROKER + "server/connection_session.py"
TLS_TRANSPORT = "core/plimsoll_net/tls_transport.py"
TLS_CONNECTION = "core/plimsoll_net/tls_connection.py"

BUFFERS: tuple[Mutant, ...] = (
    Mutant(
        name="sends-nothing-when-drained",
        rule="replies that waited until the peer took those before are sent then",
        scenarios=("B01",),
        profile="full buffers",
        edits=(
            Edit(
                SESSION,
                "        self._sender.settle()\n        self._send_what_is_due()\n",
                "        self._sender.settle()\n",
            ),
        ),
    ),
    Mutant(
        name="stays-full",
        rule="a connection whose replies were taken is read again",
        scenarios=("B01",),
        profile="full buffers",
        edits=(
            Edit(SESSION,
                 "        self._flow.release(OUTPUT_FULL)\n        self._sender.settle()",
                 "        self._sender.settle()"),
        ),
    ),
    Mutant(
        name="encrypts-no-more",
        rule="TLS goes on with what is queued once the kernel took what was encrypted",
        scenarios=("B02",),
        profile="full buffers",
        edits=(
            Edit(TLS_CONNECTION, "            self._transport.drained()\n", "            pass\n"),
        ),
    ),
    Mutant(
        name="waits-for-no-drain",
        rule="a session that TLS told to pause is told to go on, however little is left below",
        scenarios=("B02",),
        profile="full buffers",
        edits=(
            Edit(TLS_TRANSPORT, "            self._connection.tell_when_drained()\n",
                 "            pass\n"),
        ),
    ),
    Mutant(
        name="reads-no-more-once-choked",
        rule="who was not read from because it took no answers is read from again",
        scenarios=("B02",),
        profile="full buffers",
        edits=(
            Edit(TLS_CONNECTION, "        self._choked = False\n        self._adjust_reading()\n",
                 "        self._choked = False\n"),
        ),
    ),
)  # fmt: skip
