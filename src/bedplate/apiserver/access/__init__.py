"""Who asks and what they may do: `subjects` are the values; `identity`, `tokens`; `rbac`."""
