"""Kinds of random runs: which faults take part, and between which values other options are
drawn.
"""
