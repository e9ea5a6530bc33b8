"""The one way to start a program: options, process, clients, election, probes, metrics."""
