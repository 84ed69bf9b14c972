"""`plimsoll preflight`: checks that a Kubernetes can run Plimsoll.

`gather` reads facts, the checks judge them, `report` prints verdicts. Called by `cli`; the
operator's process imports none of it.
"""
