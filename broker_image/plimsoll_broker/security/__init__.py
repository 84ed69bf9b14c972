"""Who is connected to a broker, and what each may do: the committed rules, applied here."""
