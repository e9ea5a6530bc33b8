"""IP address management for pods: pools, blocks of nodes, addresses of interfaces (docs/designs/0007-ipam.md)."""
