"""`bedplate up`: a whole cluster on one machine, with something to see in it."""
