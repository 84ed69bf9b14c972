"""Faults of random runs: a table of them, the functions that cause them, and their schedule.

`fault_table` lists every fault; `schedule` draws from it.  A module holds the faults of one
subject, a module of `scripts` one fault of several steps.
"""
