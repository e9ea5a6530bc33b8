"""The manager process: flags, validation, connections, serving, and the assembly of providers and controllers."""
