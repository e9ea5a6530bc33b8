"""Every flag of the manager as one typed value.

In: the words of a command line. Out: `Options` and every problem of syntax; `validation` finds those of values.
`GROUPS` is the order of `--help` and of `/configz`; a flag's value stands in its group: `options.generic.dry_run`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from bedplate.cloud.manager.options_controllers import CloudNode, Lifecycle, Route, ServiceLB
from bedplate.cloud.manager.options_generic import Cloud, Debugging, Generic, LeaderMigration, Misc
from bedplate.cloud.manager.options_serving import (
    Authentication,
    Authorization,
    SecureServing,
    Webhook,
    WebhookServing,
)
from bedplate.core import flag_groups
from bedplate.core.flag_groups import Group
from bedplate.core.flags import Flag
from bedplate.core.flags_global import Global
from bedplate.program import options as program
from bedplate.program.options import Reading

__all__ = ["GROUPS", "Options", "all_flags", "read"]


GROUPS: tuple[Group, ...] = (
    Group("debugging", "Debugging", Debugging),
    Group("leader_migration", "Leader-migration", LeaderMigration),
    Group("generic", "Generic", Generic),
    Group("cloud", "Cloud", Cloud),
    Group("cloud_node", "Cloud-node-controller", CloudNode),
    Group("lifecycle", "Cloud-node-lifecycle-controller", Lifecycle),
    Group("route", "Node-route-controller", Route),
    Group("service_lb", "Service-lb-controller", ServiceLB),
    Group("webhook", "Webhook", Webhook),
    Group("webhook_serving", "Webhook serving", WebhookServing),
    Group("secure_serving", "Secure serving", SecureServing),
    Group("authentication", "Authentication", Authentication),
    Group("authorization", "Authorization", Authorization),
    Group("misc", "Misc", Misc),
    Group("globals", "Global", Global),
)


@dataclass(frozen=True, slots=True)
class Options(program.Options):
    """What the manager was told, group by group."""

    GROUPS: ClassVar = GROUPS

    debugging: Debugging = field(default_factory=Debugging)
    leader_migration: LeaderMigration = field(default_factory=LeaderMigration)
    generic: Generic = field(default_factory=Generic)
    cloud: Cloud = field(default_factory=Cloud)
    cloud_node: CloudNode = field(default_factory=CloudNode)
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    route: Route = field(default_factory=Route)
    service_lb: ServiceLB = field(default_factory=ServiceLB)
    webhook: Webhook = field(default_factory=Webhook)
    webhook_serving: WebhookServing = field(default_factory=WebhookServing)
    secure_serving: SecureServing = field(default_factory=SecureServing)
    authentication: Authentication = field(default_factory=Authentication)
    authorization: Authorization = field(default_factory=Authorization)
    misc: Misc = field(default_factory=Misc)


def all_flags() -> list[Flag]:
    """Every flag, in the order of the groups."""
    return flag_groups.all_flags(GROUPS)


def read(
    words: Sequence[str], defaults: Options | None = None, *, extra: Sequence[Flag] = (), takes_arguments: bool = False
) -> Reading[Options]:
    """Parse a command line; `defaults` apply to the flags that it does not have."""

    def refuse(word: str) -> str | None:
        return None if takes_arguments else f"unexpected argument {word!r}"

    reading = program.read(Options, words, defaults, refuse=refuse, extra=extra)
    serving = reading.options.secure_serving
    if not serving.address or "bind-address" in reading.options.given:
        return reading
    serving = dataclasses.replace(serving, bind_address=serving.address)
    return dataclasses.replace(reading, options=dataclasses.replace(reading.options, secure_serving=serving))
