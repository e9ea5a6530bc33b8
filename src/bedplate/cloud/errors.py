"""What a cloud may answer besides data; raised by providers and the shared HTTP client, read by the controllers.

The one line that matters: `InstanceNotFound` is the only error that means absence. Everything else, known or not,
is a failure to find out, and no controller takes it for absence.
"""

from __future__ import annotations

from bedplate.core import errors, requeue

__all__ = [
    "AmbiguousInstance",
    "CloudError",
    "ImplementedElsewhere",
    "InstanceNotFound",
    "NoAddresses",
    "NotImplementedByCloud",
    "RetryError",
]


class CloudError(errors.Retryable):
    """A cloud could not be queried, or did not respond with data. Never absence."""

    exit_code = errors.Unavailable.exit_code


class InstanceNotFound(errors.NotFound):
    """The cloud has reported, explicitly and for this specific instance, that it does not exist."""


class AmbiguousInstance(errors.Terminal):
    """Several instances (of one or more clouds) match a node's name: nothing may be written."""


class NotImplementedByCloud(errors.Terminal):
    """The provider does not support this."""


class ImplementedElsewhere(errors.Terminal):
    """Another controller handles this object: success without a status from this one."""


class RetryError(requeue.Postponed):
    """Not yet: raised by a provider for a load balancer or an instance that is still being created."""


class NoAddresses(RetryError):
    """The instance exists, but has no addresses yet."""
