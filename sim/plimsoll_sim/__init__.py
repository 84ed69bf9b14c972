"""A deterministic simulator that runs Plimsoll's own processes, and tries to break them.

Whole processes run unmodified on an event loop of virtual time (`loop`), over a simulated network
(`network`), disks (`disk`) and Kubernetes API (`kube`).  `world` puts them together and injects
faults; `checkers` look at everything after each step; `scenario` runs the named scenarios.
"""
