"""The protocol core: it decides and does no I/O.

`controller` decides for a cluster, `replica` for one copy of one partition.  Time arrives as
`now_ms`, randomness as a value.  The operator, the broker and the simulator are shells around it.
"""
