"""From resources to requests and children, and from results to conditions: pure decisions."""
