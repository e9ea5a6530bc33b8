"""What the type of a kind says of its objects: `typegraph` (types), `fitting` (unknown fields dropped), `defaults`.

`rules` is the front door that the verbs call; it asks custom kinds' own rules where the kind is custom.
"""
