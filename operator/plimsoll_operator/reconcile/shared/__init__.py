"""Rules and state of several kinds of objects: the kinds import these and never each other."""
