"""VerificationSchedules: Verifications at stated times."""
