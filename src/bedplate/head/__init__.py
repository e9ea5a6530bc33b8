"""The head node: one tree of objects, edited in sessions, committed as revisions, resolved for nodes."""
