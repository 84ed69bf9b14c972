"""The common parts of all decisions: the decision's context, a partition's change, refusals."""
