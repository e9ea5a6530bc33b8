"""What to do next for a Service's floating IPs: `next_step` and `plan`. Pure; the effects are in `carrying`.

The caller carries a step out and asks again with what the cloud answered, so every step is decided on the latest state,
and a process that dies between two steps is followed by one that goes on from there. The order gives that:

1. claim: write our record into what we may take over, before anything else is done to it;
2. give every slot its floating IP: keep the old one on a living node, then make the new one (record included, in the
   same call), then attach it;
3. only then detach and delete what is no longer wanted;
4. last, give the replacement the name of what it replaced.

Whatever carries no record of this Service is neither changed nor deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from bedplate.cloud.errors import CloudError
from bedplate.cloud.providers.oxide import models, names, ownership, providerid
from bedplate.cloud.providers.oxide.wants import NAME, Slot, is_named

__all__ = [
    "MAX_STEPS",
    "Attach",
    "Change",
    "Create",
    "Delete",
    "Detach",
    "FloatingIpMissing",
    "FloatingIpNotOwned",
    "Step",
    "Update",
    "Want",
    "assign",
    "describe",
    "is_legacy",
    "may_borrow",
    "next_claim",
    "next_step",
    "owned",
    "plan",
    "predict",
    "removal",
]

MAX_STEPS = 60
"""More than any Service needs; a bound for callers that repeat `next_step`."""


class FloatingIpNotOwned(CloudError):
    """A floating IP with the required name is not owned by this cluster; also the reason of the event."""


class FloatingIpMissing(CloudError):
    """The Service names a floating IP that does not exist."""


@dataclass(frozen=True, slots=True)
class Create:
    """Make a floating IP; `passed_over` is the foreign one that has our preferred name."""

    slot: Slot
    name: str
    description: str
    passed_over: models.FloatingIp | None = None


@dataclass(frozen=True, slots=True)
class Attach:
    ip: models.FloatingIp
    instance: str


@dataclass(frozen=True, slots=True)
class Detach:
    ip: models.FloatingIp


@dataclass(frozen=True, slots=True)
class Delete:
    ip: models.FloatingIp


@dataclass(frozen=True, slots=True)
class Update:
    """Change name or description; None leaves it."""

    ip: models.FloatingIp
    name: str | None = None
    description: str | None = None


Change = Attach | Detach | Delete | Update
Step = Create | Change


@dataclass(frozen=True, slots=True)
class Want:
    """What a Service should have.

    `instance` is where its floating IPs belong (None: leave them where they are). `nodes` are the instances of our
    nodes. `legacy_name` is the original's name for the floating IP. `is_settled`: do not make, delete or rename
    anything, only move. `is_retained`: what is no longer wanted, but was `published`, is kept. `full`: instances that
    have no room for one more. `failed`: slots that need not be filled and could not be.
    """

    owner: ownership.Owner
    slots: tuple[Slot, ...]
    instance: str | None = None
    nodes: frozenset[str] = frozenset()
    legacy_name: str = ""
    is_settled: bool = False
    is_retained: bool = False
    published: frozenset[str] = frozenset()
    full: frozenset[str] = frozenset()
    failed: frozenset[Slot] = frozenset()


def owned(owner: ownership.Owner, ips: Iterable[models.FloatingIp]) -> list[models.FloatingIp]:
    """Those whose record names this very Service, in a lasting order."""
    own = []
    for ip in ips:
        record = ownership.parse(ip.description)
        if record is not None and record.role != "retained" and record.owner.is_same_service(owner):
            own.append(ip)
    return sorted(own, key=lambda ip: (ip.name, ip.id))


def next_step(want: Want, ips: Sequence[models.FloatingIp]) -> Step | None:
    """The one thing to do now; None when all is as it should be.

    Raises `FloatingIpNotOwned` or `FloatingIpMissing` when nothing that is allowed leads there.
    """
    if not want.is_settled:
        claim = next_claim(want, ips)
        if claim is not None:
            return claim
    own = owned(want.owner, ips)
    assigned = assign(want, own)
    spare = [ip for ip in own if ip not in assigned.values()]
    for slot in want.slots:
        step = _fill(want, slot, assigned, spare, ips)
        if step is not None:
            return step
    if want.is_settled:
        return None
    # What could not be replaced is better than nothing.
    irreplaceable = {slot.family for slot in want.failed}
    for ip in spare:
        if ip.family not in irreplaceable:
            return removal(ip, is_retained=want.is_retained and ip.ip in want.published)
    return _rename(assigned, ips)


def plan(want: Want, ips: Sequence[models.FloatingIp]) -> tuple[Step, ...]:
    """All steps from here to what is wanted, if each of them succeeds."""
    steps: list[Step] = []
    for _ in range(MAX_STEPS):
        step = next_step(want, ips)
        if step is None:
            break
        steps.append(step)
        ips = predict(step, ips)
    return tuple(steps)


def predict(step: Step, ips: Sequence[models.FloatingIp]) -> tuple[models.FloatingIp, ...]:
    """What the cloud would hold after a step; an address that the cloud will choose is the family's zero."""
    if isinstance(step, Create):
        address = step.slot.ip or ("::" if (step.slot.family or step.slot.preferred) == "v6" else "0.0.0.0")
        created = models.FloatingIp(
            id=f"predicted-{step.name}",
            name=step.name,
            description=step.description,
            ip=address,
            ip_pool_id=step.slot.pool_id,
        )
        return (*ips, created)
    rest = tuple(ip for ip in ips if ip.id != step.ip.id)
    if isinstance(step, Delete):
        return rest
    if isinstance(step, Update):
        given: dict[str, Any] = {"name": step.name, "description": step.description}
        fields = {key: value for key, value in given.items() if value is not None}
    else:
        fields = {"instance_id": step.instance if isinstance(step, Attach) else None}
    return (*rest, msgspec.structs.replace(step.ip, **fields))


def removal(ip: models.FloatingIp, *, is_retained: bool, is_renamed: bool = True) -> Step | None:
    """The next step of getting rid of a floating IP of ours: detach; then delete it, or give it back or keep it.

    `is_renamed`: one that is kept must not keep the name as well.
    """
    if ip.instance_id:
        return Detach(ip)
    record = ownership.parse(ip.description)
    if record is None or record.role == "retained":
        return None
    if record.role == "adopted":
        return Update(ip, description=record.words)
    if is_retained:
        name = names.kept_name(ip.name, ip.id) if is_renamed else None
        return Update(ip, name, ownership.write(replace(record, role="retained")))
    return Delete(ip)


def assign(want: Want, own: Sequence[models.FloatingIp]) -> dict[Slot, models.FloatingIp]:
    """Which of the Service's floating IPs fills which slot."""
    assigned: dict[Slot, models.FloatingIp] = {}
    for slot in want.slots:
        candidates = [ip for ip in own if ip not in assigned.values() and slot.matches(ip)]
        if candidates:
            assigned[slot] = min(candidates, key=lambda ip: _rank(want, slot, ip))
    return assigned


def _rank(want: Want, slot: Slot, ip: models.FloatingIp) -> tuple[bool, bool, bool, bool, str]:
    return (
        ip.family != slot.preferred,
        ip.name != slot.names.main,
        not providerid.same(ip.instance_id, want.instance),
        not ip.instance_id,
        ip.id,
    )


# Claiming


def may_borrow(ip: models.FloatingIp, want: Want) -> bool:
    """Whether a floating IP that the Service names may be used by it: nobody else's, and not in use elsewhere."""
    record = ownership.parse(ip.description)
    if record is not None and record.role != "retained" and not record.owner.is_same_place(want.owner):
        return False
    if ip.instance_id and is_legacy(ip, ip.name) and ip.name != want.legacy_name:
        # The original manager has attached it for another Service, which has not taken it over yet.
        return False
    return _is_free(ip, want.nodes)


def _is_free(ip: models.FloatingIp, nodes: frozenset[str]) -> bool:
    return not ip.instance_id or providerid.fold(ip.instance_id) in nodes


def next_claim(want: Want, ips: Sequence[models.FloatingIp]) -> Update | None:
    """Write our record where we may: what the Service names, what a predecessor or the original left, what was kept."""
    own = owned(want.owner, ips)
    for slot in want.slots:
        if slot.adopt:
            step = _claim_named(want, slot, ips)
            if step is not None:
                return step
    for ip in ips:
        if ip not in own and _is_left_behind(ip, want):
            left = ownership.parse(ip.description) or ownership.Record(want.owner, "managed")
            return Update(ip, description=ownership.write(replace(left, owner=want.owner)))
    filled = assign(want, own)
    for slot in want.slots:
        if slot not in filled and not slot.adopt:
            for ip in ips:
                if _is_kept_for(ip, want) and slot.matches(ip):
                    return Update(ip, description=_managed(want))
    return None


def _claim_named(want: Want, slot: Slot, ips: Sequence[models.FloatingIp]) -> Update | None:
    ip = next((ip for ip in ips if is_named(ip, slot.adopt)), None)
    if ip is None:
        raise FloatingIpMissing(f"there is no floating IP {slot.adopt!r} in the project")
    record = ownership.parse(ip.description)
    if record is not None and record.role == "adopted" and record.owner.is_same_service(want.owner):
        return None
    if not may_borrow(ip, want):
        whose = "it is in use for something else"
        if record is not None:
            user = record.owner
            whose = f"it serves the Service {user.namespace}/{user.name} of cluster {user.cluster}"
        raise FloatingIpNotOwned(f"the floating IP {ip.name} ({ip.ip}) cannot be used: {whose}")
    words = ip.description if record is None else record.words
    return Update(ip, description=ownership.write(ownership.Record(want.owner, "adopted", words)))


def _is_left_behind(ip: models.FloatingIp, want: Want) -> bool:
    record = ownership.parse(ip.description)
    if record is not None:
        # Namespace and name are unique in a cluster, so a Service of another UID there is no more.
        is_earlier = record.owner.is_same_place(want.owner) and record.owner.service != want.owner.service
        return is_earlier and record.role != "retained"
    if not is_legacy(ip, want.legacy_name) or not _is_free(ip, want.nodes):
        return False
    # In use on a node of ours it is ours. Unused it may be, and is taken for use, but never just to be deleted.
    return bool(ip.instance_id) or any(slot.matches(ip) for slot in want.slots)


def is_legacy(ip: models.FloatingIp, name: str) -> bool:
    """Whether the original manager has made it, for a Service whose floating IP it calls so."""
    return ip.description == ownership.LEGACY_DESCRIPTION and ip.name == name


def _is_kept_for(ip: models.FloatingIp, want: Want) -> bool:
    record = ownership.parse(ip.description)
    if record is None or record.role != "retained" or not _is_free(ip, want.nodes):
        return False
    return record.owner.is_same_place(want.owner)


def _managed(want: Want) -> str:
    return ownership.write(ownership.Record(want.owner, "managed"))


# Filling a slot


def _fill(
    want: Want,
    slot: Slot,
    assigned: Mapping[Slot, models.FloatingIp],
    spare: Sequence[models.FloatingIp],
    ips: Sequence[models.FloatingIp],
) -> Step | None:
    ip = assigned.get(slot)
    if slot in want.failed:
        return None
    if ip is None:
        if want.is_settled:
            return None
        if slot.adopt:
            raise FloatingIpMissing(f"the floating IP {slot.adopt!r} is of another family than the Service")
        # While the new one cannot be had, the old one goes on serving, on a node that lives.
        old = _keeper(slot, spare)
        move = None if old is None else _move(old, want.instance)
        return move or _create(want, slot, spare, ips)
    step = _move(ip, want.instance)
    if isinstance(step, Attach) and providerid.fold(step.instance) in want.full:
        # The one it replaces is on the way out; its place is needed now.
        leaving = next((old for old in spare if providerid.same(old.instance_id, step.instance)), None)
        return step if leaving is None else Detach(leaving)
    return step


def _keeper(slot: Slot, spare: Sequence[models.FloatingIp]) -> models.FloatingIp | None:
    """The one of the old ones that goes on serving: attached, or of the main name."""
    family = slot.family or slot.preferred
    able = [ip for ip in spare if ip.family == family]
    return min(able, key=lambda ip: (not ip.instance_id, ip.name != slot.names.main, ip.id), default=None)


def _move(ip: models.FloatingIp, instance: str | None) -> Attach | Detach | None:
    if instance is None or providerid.same(ip.instance_id, instance):
        return None
    return Detach(ip) if ip.instance_id else Attach(ip, instance)


def _create(want: Want, slot: Slot, spare: Sequence[models.FloatingIp], ips: Sequence[models.FloatingIp]) -> Step:
    """Make one, under the first name that is free; a stranger's that has the main name is passed over or refused."""
    own = owned(want.owner, ips)
    holders = {ip.name: ip for ip in ips}
    holder = holders.get(slot.names.main)
    theirs = holder if holder is not None and holder not in own else None
    if theirs is not None and ownership.parse(theirs.description) is None:
        raise FloatingIpNotOwned(
            f"the floating IP {theirs.name} ({theirs.ip}) is not ours: its description does not name this Service",
            hint=f"rename or delete it, or let the Service use it with the annotation {NAME}: {theirs.name}",
        )
    name = next((candidate for candidate in slot.names.in_turn if candidate not in holders), None)
    if name is not None:
        return Create(slot, name, _managed(want), theirs)
    # An earlier replacement that is no longer wanted either; never the one that serves meanwhile.
    keeper = _keeper(slot, spare)
    stale = next((ip for ip in spare if ip is not keeper and ip.name in slot.names.in_turn), None)
    step = removal(stale, is_retained=False) if stale is not None else None
    if step is None:
        raise FloatingIpNotOwned(f"all names of the floating IP are taken: {', '.join(slot.names.in_turn)}")
    return step


def _rename(assigned: Mapping[Slot, models.FloatingIp], ips: Sequence[models.FloatingIp]) -> Update | None:
    taken = {ip.name for ip in ips}
    for slot, ip in assigned.items():
        if ip.name in (slot.names.spare, slot.names.replacement) and slot.names.main not in taken:
            return Update(ip, name=slot.names.main)
    return None


def describe(step: Step) -> dict[str, Any]:
    """A step as keys and values for a log line."""
    if isinstance(step, Create):
        return {"step": "create", "floating_ip": step.name}
    values: dict[str, Any] = {"step": type(step).__name__.lower(), "floating_ip": step.ip.name, "address": step.ip.ip}
    if isinstance(step, Attach):
        values["instance"] = step.instance
    if isinstance(step, Update) and step.name is not None:
        values["name"] = step.name
    return values
