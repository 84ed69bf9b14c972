"""Random runs: drawing their options, profiles, results, runs of many seeds, and shrinking a
failing run.
"""
