"""`ipam-controller`: from watches of nodes and pools to the pools' statuses."""
