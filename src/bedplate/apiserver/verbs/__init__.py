"""What a request to a resource does, one module per family: read, watch, write, patch, delete, scale."""
