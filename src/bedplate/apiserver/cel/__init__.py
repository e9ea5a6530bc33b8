"""The Common Expression Language as the Kubernetes API server runs it: parsed, type-checked, compiled to closures.

`environment.compile_expression` is the way in; `rules` applies it to `x-kubernetes-validations`. Why this is our own:
docs/designs/0003-cel.md.
"""

from __future__ import annotations
