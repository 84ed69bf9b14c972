"""What must hold after every step, one module a subject; named as the protocol names it."""
