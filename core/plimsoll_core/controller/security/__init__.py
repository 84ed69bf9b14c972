"""What the controller decides about users, credentials and rights."""
