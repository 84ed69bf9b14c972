"""A deterministic simulator that runs Plimsoll's own processes under faults, and checks their
invariants.

Whole processes (`hosts`) run unmodified on an event loop of virtual time (`engine`), over a
simulated network, disks and Kubernetes API (`environment`). `cluster` assembles a simulated
cluster, `faults` act on it, `oracle` and `checkers` check all state after each step; `runs` draws
random runs, and `scenario` runs the named ones. `mutants` removes guards from the code under test,
to see that a run then fails.
"""
