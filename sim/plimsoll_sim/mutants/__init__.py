"""Tests of the simulator: each guard in the code is removed in turn, and a scenario and a random
run must fail.

`mutants.txt` lists the mutants, `tree_edits` changes their code, `mutant` turns a process into one,
`hunt` searches for the runs that fail, and `kills` stores these in `kills.json`.
"""
