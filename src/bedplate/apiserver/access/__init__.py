"""Who asks and what they may do: `identity`, `tokens`, `authentication`; `rbac`, `authorization`."""
