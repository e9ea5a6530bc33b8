"""Which cloud a node belongs to: all providers of this process, and the only way for controllers to reach them.

In: Nodes. Out: the provider whose machine it is, or the reason why it is not managed here. A provider ID's scheme
decides; for a node without one every provider is asked for the name, and `settle` judges their answers. A provider ID
can never be changed once it is written, so a doubtful claim does not count. Writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bedplate.api import core
from bedplate.cloud.errors import AmbiguousInstance, InstanceNotFound
from bedplate.cloud.interface import InstanceMetadata, Instances, Provider
from bedplate.cloud.legacy import AdaptedInstances
from bedplate.core import clock, errors

__all__ = [
    "LIST_AGE_S",
    "PATIENCE_S",
    "Claimed",
    "Clouds",
    "Contested",
    "Foreign",
    "Owned",
    "Place",
    "Reply",
    "Settlement",
    "Unclaimed",
    "Unplaced",
    "Waiting",
    "scheme_of",
    "settle",
]

LIST_AGE_S = 600.0
"""A complete list of a cloud that cannot be asked now speaks for it this long."""
PATIENCE_S = 5.0
"""How long the other clouds may take once one has claimed a name."""
SILENCE_S = 30.0
"""After a cloud has used that time up, claims do not wait for it for this long."""


@dataclass(frozen=True, slots=True)
class Owned:
    """The provider ID is of this provider."""

    provider: Provider


@dataclass(frozen=True, slots=True)
class Foreign:
    """Not ours, and why: another scheme, or (then `provider` is named) another organisation of one of our clouds."""

    reason: str
    provider: str = ""


@dataclass(frozen=True, slots=True)
class Unplaced:
    """The node has no provider ID: its name may tell."""


Place = Owned | Foreign | Unplaced


@dataclass(frozen=True, slots=True)
class Reply:
    """What one provider said about a node's name. `metadata` None without `error`: nothing to do, as it sees it."""

    provider: Provider
    metadata: InstanceMetadata | None = None
    error: Exception | None = None
    was_absent: bool = False
    """Its last complete list, not too old, held no such name."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """One provider has a machine of that name, and no other can have."""

    provider: Provider
    metadata: InstanceMetadata


@dataclass(frozen=True, slots=True)
class Contested:
    """Several machines answer to that name."""

    reason: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """It cannot be told yet; `error` is why; a retry may succeed."""

    reason: str
    error: Exception
    claimant: str = ""


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """No provider has work with it. `is_unknown`: at least one said that it has no such machine."""

    reason: str
    is_unknown: bool


Settlement = Claimed | Contested | Waiting | Unclaimed


def scheme_of(provider_id: str) -> str:
    """The part of a provider ID before `://`; empty when there is none."""
    scheme, separator, _ = provider_id.partition("://")
    return scheme if separator else ""


class Clouds:
    """The providers of one process, by name and by scheme, in the order in which they were named."""

    def __init__(self, providers: Sequence[Provider], *, time: clock.Clock | None = None) -> None:
        self._time = time if time is not None else clock.SystemClock()
        self._providers = tuple(providers)
        self._by_scheme: dict[str, Provider] = {}
        self._owned = {provider.name: Owned(provider) for provider in providers}
        self._instances: dict[str, Instances] = {}
        self._silent_until: dict[str, float] = {}
        """Clouds that did not answer a claim in time: one that hangs must not slow down the nodes of all others."""
        for provider in providers:
            self._take(provider)

    def _take(self, provider: Provider) -> None:
        for scheme in provider.schemes:
            if (other := self._by_scheme.setdefault(scheme, provider)) is not provider:
                raise errors.Invalid(
                    f"cloud providers {other.name} and {provider.name} both handle {scheme}://", hint="name one"
                )
        if provider.instances is not None:
            self._instances[provider.name] = provider.instances
        elif provider.legacy is not None:
            self._instances[provider.name] = AdaptedInstances(provider.name, provider.legacy)

    def __iter__(self) -> Iterator[Provider]:
        return iter(self._providers)

    def __len__(self) -> int:
        return len(self._providers)

    @property
    def sole(self) -> Provider | None:
        """The only provider, when there is only one: then a node without a provider ID can be nobody else's."""
        return self._providers[0] if len(self._providers) == 1 else None

    def instances(self, provider: Provider) -> Instances | None:
        """Its machines; those of the old interface where it has no other."""
        return self._instances.get(provider.name)

    def with_instances(self) -> tuple[Provider, ...]:
        """The providers whose machines can be asked for."""
        return tuple(provider for provider in self._providers if provider.name in self._instances)

    def place(self, node: core.Node, future_id: str = "") -> Place:
        """Whose node this is, by its provider ID, or by the one that it is to get. Asks nobody."""
        provider_id = node.spec.provider_id or future_id
        if not provider_id:
            return Unplaced()
        scheme = scheme_of(provider_id)
        provider = self._by_scheme.get(scheme)
        if provider is None:
            ours = ", ".join(f"{name}://" for name in self._by_scheme)
            return Foreign(f"its provider ID {provider_id!r} belongs to none of this manager's clouds ({ours})")
        try:
            reason = provider.is_foreign(provider_id)
        except Exception as err:
            # It cannot say whose this is, so nobody here may touch it.
            reason = f"{provider.name} cannot read its provider ID {provider_id!r}: {str(err) or type(err).__name__}"
        return Foreign(reason, provider.name) if reason else self._owned[provider.name]

    def foreign(self, nodes: Iterable[core.Node]) -> Mapping[str, str]:
        """The names of the nodes that are not ours, with the reason of each."""
        places = ((node.name, self.place(node)) for node in nodes)
        return {name: place.reason for name, place in places if isinstance(place, Foreign)}

    async def claim(self, node: core.Node) -> Settlement:
        """Ask every provider for a node without a provider ID, by its name."""
        return settle(node.name, await self._replies(node))

    async def _replies(self, node: core.Node) -> list[Reply]:
        """All answers; once one provider has claimed the name, the others get little more time."""
        asked = {asyncio.ensure_future(self._reply(provider, node)): provider for provider in self.with_instances()}
        waiting: set[asyncio.Future[Any]] = set(asked)
        hurry: asyncio.Future[None] | None = None
        try:
            while any(not task.done() for task in asked) and not (hurry is not None and hurry.done()):
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if hurry is None and any(task.result().metadata is not None for task in done):
                    hurry = asyncio.ensure_future(self._time.sleep(self._patience_s(asked)))
                    waiting.add(hurry)
            return [task.result() if task.done() else self._silent(provider, node) for task, provider in asked.items()]
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    def _patience_s(self, asked: Mapping[asyncio.Task[Reply], Provider]) -> float:
        """How long to wait for those who have not answered: not at all when they were silent just now."""
        now = self._time.monotonic()
        left = (provider.name for task, provider in asked.items() if not task.done())
        return 0.0 if all(self._silent_until.get(name, now) > now for name in left) else PATIENCE_S

    async def _reply(self, provider: Provider, node: core.Node) -> Reply:
        instances = self._instances[provider.name]
        try:
            reply = Reply(provider, await instances.metadata(node))
        except Exception as err:
            # Whatever it is, it is not an answer; `settle` judges it.
            reply = Reply(provider, None, err, instances.was_absent(node.name, LIST_AGE_S))
        self._silent_until.pop(provider.name, None)
        return reply

    def _silent(self, provider: Provider, node: core.Node) -> Reply:
        now = self._time.monotonic()
        if self._silent_until.get(provider.name, now) <= now:
            self._silent_until[provider.name] = now + SILENCE_S
        error = errors.Unavailable(f"{provider.name} has not responded")
        return Reply(provider, None, error, self._instances[provider.name].was_absent(node.name, LIST_AGE_S))


def settle(name: str, replies: Sequence[Reply]) -> Settlement:
    """Who may have a node of that name. Pure."""
    claims = [reply for reply in replies if reply.metadata is not None]
    doubled = [reply for reply in replies if isinstance(reply.error, AmbiguousInstance)]
    if len(claims) + len(doubled) > 1 or doubled:
        clouds = ", ".join(reply.provider.name for reply in (*claims, *doubled))
        details = "".join(f"; {reply.provider.name}: {reply.error}" for reply in doubled)
        return Contested(f"several machines have the name {name} (in {clouds}{details}); set its provider ID")
    unsure = [reply for reply in replies if reply.error is not None and not isinstance(reply.error, InstanceNotFound)]
    if claims:
        return _claimed(name, claims[0], [reply for reply in unsure if not reply.was_absent])
    if unsure:
        error = unsure[0].error
        assert error is not None, "unsure replies have an error"
        return Waiting(f"{unsure[0].provider.name} could not be queried for {name}: {error}", error)
    unknown = [reply.provider.name for reply in replies if reply.error is not None]
    if unknown:
        return Unclaimed(f"no machine is named {name} in {', '.join(unknown)}", is_unknown=True)
    return Unclaimed(f"no provider handles {name}", is_unknown=False)


def _claimed(name: str, claim: Reply, doubtful: Sequence[Reply]) -> Settlement:
    assert claim.metadata is not None, "a claim has metadata"
    if not doubtful:
        return Claimed(claim.provider, claim.metadata)
    silent = ", ".join(reply.provider.name for reply in doubtful)
    error = doubtful[0].error
    assert error is not None, "doubtful replies have an error"
    reason = (
        f"{claim.provider.name} has a machine named {name}, but {silent} could not be asked whether it has one too; "
        "a provider ID cannot be changed later, so the node waits"
    )
    return Waiting(reason, error, claimant=claim.provider.name)
