"""coordination.k8s.io/v1: Lease."""

from __future__ import annotations

from datetime import datetime

from bedplate.api import meta

__all__ = ["Lease", "LeaseSpec"]


class LeaseSpec(meta.Model, frozen=True):
    """Who holds the lease, since when, and for how long after the last renewal."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class Lease(meta.Object, frozen=True):
    """A lock with an expiry that its holder keeps renewing."""

    spec: LeaseSpec = LeaseSpec()
