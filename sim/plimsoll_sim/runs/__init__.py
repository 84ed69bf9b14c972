"""Random runs: their options, profiles, outcome, many of them, and fewer faults that still fail."""
