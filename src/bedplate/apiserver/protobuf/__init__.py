"""The protobuf form of built-in kinds: `decoding`, `encoding`, and `special` for types that Go writes by hand."""
