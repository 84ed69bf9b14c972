"""The faults of a random run: a table of faults, the functions behind it, and their schedule.

`fault_table` lists every fault; `schedule` draws from it.  A module holds the faults of one
subject, a module of `scripts` one fault of several steps.
"""
