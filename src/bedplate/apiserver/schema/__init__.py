"""Structural schemas of custom resources: checked once, compiled once, then default, prune and validate objects.

The parts that `crds.schema_checks` (is the schema sound?) and `crds.custom` (is the object?) are made of.
"""

from __future__ import annotations
