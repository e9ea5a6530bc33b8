"""Operators: programs that turn custom resources into what people run on a cluster."""
