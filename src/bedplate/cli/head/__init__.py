"""`bedplate head`: its commands, and the daemon that serves a head."""
