"""The floor of the project: errors, clock, backoff, durations, settings, logging. No network and no disk, except a settings file."""
