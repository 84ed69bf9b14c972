"""The shared parts of a broker's coordinators: outcomes, deadlines, codes, hashing."""
