"""`plimsoll preflight`: checks that a Kubernetes cluster can run Plimsoll.

`gather` reads facts, `checks` judges them, `checklist` orders and prints the verdicts. Called by
`cli`; the operator's process imports none of these modules.
"""
