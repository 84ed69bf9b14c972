"""What every coordinator on this broker shares: outcomes, deadlines, codes, hashing."""
