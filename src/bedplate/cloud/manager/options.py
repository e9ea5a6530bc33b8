"""Every flag of the manager as one typed value.

In: the words of a command line. Out: `Options`, or `Invalid` with every problem found (grammar and values together).
`GROUPS` is the order of `--help` and of `/configz`; a flag's value is found in its group: `options.generic.dry_run`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bedplate.cloud.manager.options_controllers import CloudNode, Lifecycle, Route, ServiceLB
from bedplate.cloud.manager.options_generic import Cloud, Debugging, Generic, LeaderMigration, Misc
from bedplate.cloud.manager.options_serving import (
    Authentication,
    Authorization,
    SecureServing,
    Webhook,
    WebhookServing,
)
from bedplate.core import flag_groups, flags
from bedplate.core.flag_groups import Group
from bedplate.core.flags import Flag
from bedplate.core.flags_global import Global

__all__ = ["GROUPS", "Options", "Reading", "all_flags", "read"]


@dataclass(frozen=True, slots=True)
class Options:
    """What the manager was told, group by group. `given` names the flags that were written down."""

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
    globals: Global = field(default_factory=Global)
    given: frozenset[str] = frozenset()

    def items(self) -> Iterator[tuple[Flag, Any]]:
        """Every flag with its value, in the order of the groups."""
        return flag_groups.items(GROUPS, self)


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
class Reading:
    """A command line that was read: the options, as far as they could be understood, and what could not."""

    options: Options
    problems: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    """Words that are no flags, where those are allowed."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Values of flags that only this command has."""


def all_flags() -> list[Flag]:
    """Every flag, in the order of the groups."""
    return flag_groups.all_flags(GROUPS)


def read(
    words: Sequence[str], defaults: Options | None = None, *, extra: Sequence[Flag] = (), takes_arguments: bool = False
) -> Reading:
    """Read a command line; `defaults` are what counts where it says nothing."""
    base = defaults if defaults is not None else Options()
    parsed = flags.parse([*all_flags(), *extra], words)
    chosen = flag_groups.chosen(GROUPS, parsed.values, base)
    problems = list(parsed.problems)
    if not takes_arguments:
        problems += [f"unexpected argument {word!r}" for word in parsed.arguments]
    serving: SecureServing = chosen["secure_serving"]
    if serving.address and "bind-address" not in parsed.values:
        chosen["secure_serving"] = dataclasses.replace(serving, bind_address=serving.address)
    more = {one.name: parsed.values.get(one.name, one.default) for one in extra}
    read = Options(**chosen, given=frozenset(parsed.values))
    return Reading(read, tuple(problems), tuple(parsed.arguments), more)
