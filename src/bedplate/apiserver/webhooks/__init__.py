"""Admission webhooks: `configurations` are checked and read, `admission` decides whom to ask, `calls` asks."""
