"""Tests of the tests: each guard is removed in turn, and a scenario and a seed must notice.

`mutants.txt` lists the mutants, `tree_edits` changes their code, `mutant` turns a process into one,
`hunt` looks for what notices them, `kills` keeps what was found in `kills.json`.
"""
