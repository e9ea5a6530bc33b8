"""From bytes to values and back: `http` (the protocol), `codec` (JSON, YAML, protobuf bodies and their limits)."""
