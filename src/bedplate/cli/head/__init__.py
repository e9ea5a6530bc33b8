"""`bedplate head`: make, serve and look after a head."""
