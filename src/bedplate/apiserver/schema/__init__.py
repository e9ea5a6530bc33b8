"""Structural schemas of custom resources: checked once, compiled once, then default, prune and validate objects.

`definition.check_schema` judges a schema; `custom.CustomValidator` applies one. The other modules are their parts.
"""

from __future__ import annotations
