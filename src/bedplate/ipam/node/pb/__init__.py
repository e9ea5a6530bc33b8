"""Messages of the node daemon's services and of the runtime's, made from `proto/ipam` by `proto/ipam/generate`, never by hand."""
