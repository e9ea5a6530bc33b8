"""What is to be done about one Service's load balancer, and why. Pure.

In: the Service as the cache has it, what this process remembers of it, and what its load balancer should know of its
targets now. Out: steps, each with a sentence for people; a Service that needs nothing gets a sentence too.

Whose a Service is: with `spec.loadBalancerClass` unset it belongs to the first provider of `--cloud-provider` that has
load balancers, unless `--load-balancer-default-class=false`. With a class set it belongs to us only if
`--load-balancer-class` lists exactly that class, as `CLASS` (the same first provider) or as `CLASS=PROVIDER`.
A load balancer that another process has made may be any provider's: to remove it, all are asked; and a Service that has
our finalizer already when this process first sees it is removed from all but its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from bedplate.api import core, names
from bedplate.cloud.controllers.targets import Fingerprint
from bedplate.cloud.interface import same_status
from bedplate.core import errors

__all__ = [
    "Delete",
    "Ensure",
    "Forget",
    "Memory",
    "Nothing",
    "Owner",
    "Ownership",
    "Release",
    "Step",
    "Sweep",
    "Update",
    "add_finalizer_patch",
    "needs_cleanup",
    "parse_classes",
    "plan",
    "release_patch",
    "status_patch",
    "update_reason",
]

FINALIZER = names.FINALIZER_LOAD_BALANCER
LOAD_BALANCER = "LoadBalancer"


# Whose it is


def parse_classes(entries: Iterable[str]) -> dict[str, str]:
    """`--load-balancer-class`: class → provider, empty for the first one with load balancers."""
    classes: dict[str, str] = {}
    problems = []
    for entry in entries:
        name, _, provider = entry.strip().partition("=")
        if not name:
            problems.append(f"{entry!r} has no class name")
        elif reasons := names.label_key_problems(name):
            problems.append(f"{name!r} is not a load balancer class: {reasons[0]}")
        elif name in classes:
            problems.append(f"{name!r} is listed twice")
        classes[name] = provider
    if problems:
        raise errors.Invalid("--load-balancer-class", problems=problems)
    return classes


@dataclass(frozen=True, slots=True)
class Owner:
    """The provider a Service's load balancer comes from; empty when it is not ours. `why` says so in words."""

    provider: str
    why: str


@dataclass(frozen=True, slots=True)
class Ownership:
    """The rule by which a Service is ours. `providers` are those with load balancers, in their order."""

    providers: tuple[str, ...]
    classes: Mapping[str, str] = field(default_factory=dict)
    takes_unset: bool = True

    def __post_init__(self) -> None:
        known = ", ".join(self.providers) or "none"
        problems = [
            f"{name}={provider}: providers with load balancers are {known}"
            for name, provider in self.classes.items()
            if provider and provider not in self.providers
        ]
        if problems:
            raise errors.Invalid("--load-balancer-class", problems=problems)

    def owner(self, service: core.Service) -> Owner:
        """Whose the load balancer of this Service is, if it wants one."""
        if service.spec.type != LOAD_BALANCER:
            return Owner("", f"its type is {service.spec.type or 'ClusterIP'}, not LoadBalancer")
        if not self.providers:
            return Owner("", "no provider of this manager has load balancers")
        class_name = service.spec.load_balancer_class
        if class_name is None:
            if not self.takes_unset:
                return Owner("", "it has no loadBalancerClass, and --load-balancer-default-class is false")
            return Owner(self.providers[0], f"it has no loadBalancerClass, so {self.providers[0]} serves it")
        if class_name not in self.classes:
            return Owner(
                "", f"its loadBalancerClass {class_name!r} belongs to another controller (--load-balancer-class)"
            )
        provider = self.classes[class_name] or self.providers[0]
        return Owner(provider, f"its loadBalancerClass {class_name!r} is served by {provider}")


def has_finalizer(service: core.Service) -> bool:
    """Whether our finalizer holds the Service."""
    return FINALIZER in service.metadata.finalizers


def needs_cleanup(service: core.Service) -> bool:
    """Whether our finalizer holds a Service that shall have no load balancer any more."""
    return has_finalizer(service) and (service.metadata.is_deleting or service.spec.type != LOAD_BALANCER)


# What changed

_COMPARED: tuple[tuple[str, str], ...] = (
    ("load_balancer_source_ranges", "loadBalancerSourceRanges"),
    ("session_affinity", "sessionAffinity"),
    ("session_affinity_config", "sessionAffinityConfig"),
    ("load_balancer_ip", "loadBalancerIP"),
    ("external_ips", "externalIPs"),
    ("external_traffic_policy", "externalTrafficPolicy"),
    ("health_check_node_port", "healthCheckNodePort"),
    ("ip_families", "ipFamilies"),
    ("ip_family_policy", "ipFamilyPolicy"),
    ("load_balancer_class", "loadBalancerClass"),
    ("ports", "ports"),
)


def update_reason(old: core.Service, new: core.Service, ownership: Ownership) -> str:
    """What changed that a load balancer must follow; empty when nothing did (needs_update)."""
    was, now = bool(ownership.owner(old).provider), bool(ownership.owner(new).provider)
    if not was and not now:
        return ""
    if was != now:
        return "it needs a load balancer now" if now else "it no longer needs a load balancer"
    changed = [
        shown
        for attribute, shown in _COMPARED
        if (getattr(old.spec, attribute) or None) != (getattr(new.spec, attribute) or None)
    ]
    if old.metadata.annotations != new.metadata.annotations:
        changed.append("annotations")
    if old.metadata.uid != new.metadata.uid:
        changed.append("uid")
    return f"changed: {', '.join(changed)}" if changed else ""


# Patches of services/status: finalizers and status, never the spec. The UID guards against a successor of that name.


def add_finalizer_patch(service: core.Service) -> dict[str, Any]:
    return {"metadata": {"uid": service.metadata.uid, "finalizers": [FINALIZER]}}


def release_patch(service: core.Service, *, clears_status: bool) -> dict[str, Any]:
    """Lets a Service go: without our finalizer and, where it lives on, without the status of what is gone."""
    metadata: dict[str, Any] = {"uid": service.metadata.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}
    return {"metadata": metadata, **({"status": {"loadBalancer": {"ingress": None}}} if clears_status else {})}


def status_patch(service: core.Service, status: core.LoadBalancerStatus) -> dict[str, Any]:
    ingress = [msgspec.to_builtins(entry) for entry in status.ingress]
    return {"metadata": {"uid": service.metadata.uid}, "status": {"loadBalancer": {"ingress": ingress or None}}}


# What to do


@dataclass(frozen=True, slots=True)
class Memory:
    """What this process knows of a Service's load balancer."""

    service: core.Service
    """As it was last worked on."""
    provider: str
    may_exist: bool = False
    """Whether the cloud was asked to make it."""
    ensured: core.Service | None = None
    """As it was when the load balancer was last made so; None when that failed or has not been tried."""
    announced: core.Service | None = None
    """As it was when people were last told that a load balancer is being made."""
    owes_news: bool = False
    """Whether people wait for the good news."""
    targets: Fingerprint | None = None
    """The targets that the cloud was last given."""
    published: core.LoadBalancerStatus | None = None
    """The status last written; the cache may not show it yet."""
    unswept: tuple[str, ...] = ()
    """Other providers that may still have one: it was theirs earlier, or may have been."""

    def failed(self) -> Memory:
        """After a failure: everything is to be made so again, and success is worth telling."""
        return replace(self, ensured=None, owes_news=True)


@dataclass(frozen=True, slots=True)
class Release:
    """Remove the load balancer of a Service that no longer exists; there is no object left to write to."""

    memory: Memory
    why: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the load balancer, then our finalizer and the status."""

    service: core.Service
    providers: tuple[str, ...]
    has_finalizer: bool
    clears_status: bool
    why: str


@dataclass(frozen=True, slots=True)
class Ensure:
    """Have the load balancer made so."""

    service: core.Service
    provider: str
    adds_finalizer: bool
    announces: bool
    why: str
    others: tuple[str, ...] = ()
    """Providers from which it is to be removed afterwards."""


@dataclass(frozen=True, slots=True)
class Update:
    """Only the targets changed."""

    service: core.Service
    provider: str
    before: Fingerprint | None
    now: Fingerprint

    @property
    def why(self) -> str:
        """Found out when asked for: with thousands of nodes that takes longer than the decision."""
        difference = self.before.difference(self.now) if self.before is not None else "it never had any"
        return f"its targets changed ({difference})"

    @property
    def has_other_hosts(self) -> bool:
        """Whether nodes came or went, which people are told; readiness and endpoints come and go too often for that."""
        return self.before is None or self.before.hosts != self.now.hosts


@dataclass(frozen=True, slots=True)
class Sweep:
    """Remove from providers that do not serve it what they may have from earlier."""

    service: core.Service
    providers: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Nothing is left to do, and nothing to remember."""

    why: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """All is as it should be, or none of our business."""

    why: str


Step = Release | Delete | Ensure | Update | Sweep | Forget | Nothing


def plan(
    service: core.Service | None,
    memory: Memory | None,
    ownership: Ownership,
    now: Fingerprint | None,
    carriers: frozenset[str] = frozenset(),
) -> tuple[Step, ...]:
    """The steps for one Service, in order. `now`: what its owner's load balancer should know of its targets;
    `carriers`: the only ones whose readiness matters while all is well with them."""
    if service is None:
        return (_gone(memory),)
    if memory is not None and memory.service.metadata.uid != service.metadata.uid:
        first: tuple[Step, ...] = ()
        if memory.may_exist:
            first = (Release(memory, "the Service was deleted and created again under the same name"),)
        return (*first, *plan(service, None, ownership, now, carriers))
    owner = ownership.owner(service)
    if service.metadata.is_deleting and not has_finalizer(service):
        return (_let_go(memory),)
    if needs_cleanup(service) or (not owner.provider and memory is not None and memory.may_exist):
        return (_delete(service, memory, ownership, owner),)
    if not owner.provider:
        kept = "; our finalizer stays until it is deleted, and then its load balancer is removed"
        return (Forget(owner.why + (kept if has_finalizer(service) else "")),)
    others = _others(service, memory, ownership, owner)
    step = _keep(service, memory, ownership, owner, now, carriers)
    if isinstance(step, Ensure):
        step = replace(step, others=others)
    if not others:
        return (step,)
    return step, Sweep(service, others, f"it is served by {owner.provider}; other providers may keep nothing for it")


def _others(service: core.Service, memory: Memory | None, ownership: Ownership, owner: Owner) -> tuple[str, ...]:
    """The providers that may have a load balancer of this Service though it is not theirs."""
    if memory is not None:
        former = (memory.provider,) if memory.may_exist else ()
        candidates = (*memory.unswept, *former)
    else:
        candidates = ownership.providers if has_finalizer(service) else ()
    return tuple(sorted({provider for provider in candidates if provider != owner.provider}))


def _gone(memory: Memory | None) -> Step:
    if memory is None:
        return Nothing("there is no such Service, and this process has not created a load balancer for it")
    if not memory.may_exist:
        return Forget("the Service was deleted before its load balancer was created")
    return Release(memory, "the Service was deleted although our finalizer was set")


def _let_go(memory: Memory | None) -> Step:
    if memory is not None and memory.may_exist:
        return Release(memory, "the Service is being deleted, and our finalizer was removed by another client")
    return Forget("the Service is being deleted and has no finalizer of ours: nothing is removed or added")


def _delete(service: core.Service, memory: Memory | None, ownership: Ownership, owner: Owner) -> Step:
    providers = ownership.providers
    if memory is not None and memory.may_exist:
        providers = (memory.provider, *memory.unswept)
    meta = service.metadata
    # Whether people will go on seeing a status that is ours and no longer true. One of another class may be theirs.
    if meta.is_deleting:
        why, outlives = "it is being deleted", bool(owner.provider and {*meta.finalizers} - {FINALIZER})
    else:
        why, outlives = owner.why, service.spec.type != LOAD_BALANCER
    clears_status = outlives and bool(service.status.load_balancer.ingress)
    return Delete(service, providers, has_finalizer(service), clears_status, why)


def _ensure(service: core.Service, owner: Owner, why: str, *, is_news: bool = True) -> Ensure:
    return Ensure(service, owner.provider, not has_finalizer(service), is_news, why)


def _keep(
    service: core.Service,
    memory: Memory | None,
    ownership: Ownership,
    owner: Owner,
    now: Fingerprint | None,
    carriers: frozenset[str],
) -> Step:
    if memory is None or memory.announced is None:
        is_served = has_finalizer(service) and bool(service.status.load_balancer.ingress)
        why = "this process has just started, and ensures it once" if is_served else "it has no load balancer yet"
        return _ensure(service, owner, f"{owner.why}; {why}", is_news=not is_served)
    if memory.provider != owner.provider:
        return _ensure(service, owner, f"it moves from {memory.provider} to {owner.provider}")
    if memory.ensured is None:
        changed = update_reason(memory.announced, service, ownership)
        return _ensure(service, owner, changed or "the last attempt failed", is_news=bool(changed))
    if changed := update_reason(memory.ensured, service, ownership):
        return _ensure(service, owner, changed)
    if drift := _drift(service, memory):
        return _ensure(service, owner, drift, is_news=False)
    if now is not None and (memory.targets is None or not memory.targets.is_same(now, carriers)):
        return Update(service, owner.provider, memory.targets, now)
    return Nothing("its load balancer is as it should be")


def _drift(service: core.Service, memory: Memory) -> str:
    """What another client undid of our writes; empty when nothing. A change of type and back clears the status."""
    if service.metadata.resource_version == memory.service.metadata.resource_version:
        # The cache has not moved since we wrote: it cannot show it.
        return ""
    if not has_finalizer(service):
        return "another client removed our finalizer"
    if memory.published is not None and not same_status(memory.published, service.status.load_balancer):
        return "another client changed its status"
    return ""
