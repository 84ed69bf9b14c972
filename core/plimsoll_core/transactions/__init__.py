"""The transactions of producers with a transactional id: states, decisions, limits."""
