"""The daemon of a node: it gives addresses out of the node's blocks, and remembers to whom."""
