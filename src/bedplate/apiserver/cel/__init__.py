"""The Common Expression Language as the Kubernetes API server runs it: parsed, type-checked, compiled to closures.

`environment.compile_expression` is the way in; `crds.validations` applies it to `x-kubernetes-validations`. Why it is
an implementation of our own: docs/designs/0003-cel.md.
"""

from __future__ import annotations
