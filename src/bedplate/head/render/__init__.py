"""What a node's roles mean for it: files, packages, services, labels and the rest, as values.

In: a tree and what `resolve` found for a node. Out: `Rendered`, pure and without touching a machine; `RENDERERS` for
`explain` and `plan`; one rendered file. Each role has a module of its own here.
"""

from __future__ import annotations

from bedplate.api.desired import Check, File, Flag, Service, Taint
from bedplate.head.render.assemble import RENDERERS, render, rendered_file
from bedplate.head.render.values import Held, Part, Rendered

__all__ = [
    "RENDERERS",
    "Check",
    "File",
    "Flag",
    "Held",
    "Part",
    "Rendered",
    "Service",
    "Taint",
    "render",
    "rendered_file",
]
