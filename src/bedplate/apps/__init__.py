"""Entry points: the only place where things are wired together."""
