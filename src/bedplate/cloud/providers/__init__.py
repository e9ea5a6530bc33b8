"""One package per cloud; `registry` finds them by name."""
