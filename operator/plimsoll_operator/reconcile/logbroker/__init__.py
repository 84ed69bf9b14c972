"""LogBrokers: made and removed with the brokers that they stand for, and what they show."""
