"""What people see of address management: pools, blocks, addresses and their holders, and why things are so."""
