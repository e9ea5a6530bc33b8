"""Bedplate: everything between bare metal and a working Kubernetes cluster."""

__version__ = "0.8.0"
