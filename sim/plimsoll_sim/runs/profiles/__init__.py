"""Kinds of runs: which faults take part, and what is drawn for the rest."""
