"""The floor of the project: errors, clock, backoff, durations, settings, logging. No I/O but one settings file."""
