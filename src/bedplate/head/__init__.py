"""The head node: entities, who may commit what, resolution, rendering, health.

This package is the front door of front ends: the names below are what they may use of the service and its values. The
declarations (`schema`, `entities`), the questions that are asked of a tree (`plan`, `explain`, `resolve`, `affected`,
`desired`, `render`, `validate`, `changes`, `exchange`) and what is served (`daemon`) are public modules beside it.
Everything else is the head's own.

Names are loaded when they are first used, so that a shell over a daemon never loads the store.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bedplate.head.access import Access, subject_of
    from bedplate.head.folder.sitekeys import SiteKeys
    from bedplate.head.health import Health, Measured, news
    from bedplate.head.intake import TooManyReports
    from bedplate.head.lasting import Lasting
    from bedplate.head.ledger import NonceReused
    from bedplate.head.notices import Notices
    from bedplate.head.objects import Obj, Secret, Value
    from bedplate.head.policy import ENROL, ENROL_CATEGORY, JOIN, NODE, Identity, demand, demand_errands, may
    from bedplate.head.schema.entity import Path, Schema
    from bedplate.head.service import Edits, Head, NotActive, Stale
    from bedplate.head.session import Edit, Session
    from bedplate.head.signins import Failures
    from bedplate.head.sittings import Sitting, Sittings
    from bedplate.head.tree import Address, Tree
    from bedplate.store.interface import StoreFull

__all__ = [
    "ENROL",
    "ENROL_CATEGORY",
    "JOIN",
    "NODE",
    "Access",
    "Address",
    "Edit",
    "Edits",
    "Failures",
    "Head",
    "Health",
    "Identity",
    "Lasting",
    "Measured",
    "NonceReused",
    "NotActive",
    "Notices",
    "Obj",
    "Path",
    "Schema",
    "Secret",
    "Session",
    "SiteKeys",
    "Sitting",
    "Sittings",
    "Stale",
    "StoreFull",
    "TooManyReports",
    "Tree",
    "Value",
    "demand",
    "demand_errands",
    "may",
    "news",
    "subject_of",
]

_MODULES = {
    "Access": "bedplate.head.access",
    "Address": "bedplate.head.tree",
    "Edit": "bedplate.head.session",
    "Edits": "bedplate.head.service",
    "ENROL": "bedplate.head.policy",
    "ENROL_CATEGORY": "bedplate.head.policy",
    "Failures": "bedplate.head.signins",
    "Head": "bedplate.head.service",
    "Health": "bedplate.head.health",
    "Identity": "bedplate.head.policy",
    "Lasting": "bedplate.head.lasting",
    "Measured": "bedplate.head.health",
    "JOIN": "bedplate.head.policy",
    "NODE": "bedplate.head.policy",
    "NonceReused": "bedplate.head.ledger",
    "NotActive": "bedplate.head.service",
    "Notices": "bedplate.head.notices",
    "Obj": "bedplate.head.objects",
    "Path": "bedplate.head.schema.entity",
    "Schema": "bedplate.head.schema.entity",
    "Secret": "bedplate.head.objects",
    "Session": "bedplate.head.session",
    "SiteKeys": "bedplate.head.folder.sitekeys",
    "Sitting": "bedplate.head.sittings",
    "Sittings": "bedplate.head.sittings",
    "Stale": "bedplate.head.service",
    "TooManyReports": "bedplate.head.intake",
    "Tree": "bedplate.head.tree",
    "Value": "bedplate.head.objects",
    "demand": "bedplate.head.policy",
    "demand_errands": "bedplate.head.policy",
    "may": "bedplate.head.policy",
    "news": "bedplate.head.health",
    "subject_of": "bedplate.head.access",
    "StoreFull": "bedplate.store.interface",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return value
