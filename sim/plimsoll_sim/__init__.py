"""A deterministic simulator that runs Plimsoll's own processes, and tries to break them.

Whole processes (`hosts`) run unmodified on an event loop of virtual time (`engine`), over a
simulated network, disks and Kubernetes API (`environment`).  `cluster` puts them together, `faults`
act on it, `oracle` and `checkers` look at everything after each step; `runs` draws random runs and
`scenario` plays the named ones.  `mutants` takes guards out of the code under test.
"""
