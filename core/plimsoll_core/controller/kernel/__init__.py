"""The parts that all decisions share: the decision's context, a partition's change, refusals."""
