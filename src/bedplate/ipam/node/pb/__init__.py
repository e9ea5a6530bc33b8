"""Messages of the daemon's services and of the container runtime, made from `proto/ipam` by its `generate`."""
