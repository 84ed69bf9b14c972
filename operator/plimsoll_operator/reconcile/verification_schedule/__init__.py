"""VerificationSchedules: starts Verifications at stated times."""
