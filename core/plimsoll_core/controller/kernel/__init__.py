"""What every decision stands on: the decision in the making, one partition's change, refusals."""
