"""What the cluster has: ValidatingAdmissionPolicies, Kyverno, fields of pods; and the objects that stand for all users.

In: a client, and whether policies are target. Out: `ClusterFacts`, the policy and its binding kept as they should be,
and Kyverno's policies as they are. Kinds may come and go while the manager runs, so they are asked for again and again
instead of being watched. An error is not absence: facts change only on an answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from bedplate.api import permissions
from bedplate.api.resources import RawObject
from bedplate.core import clock, errors, logging
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.kube.options import PatchType
from bedplate.operators.permissions import live, policies
from bedplate.operators.permissions.live import Live
from bedplate.operators.permissions.objects import ClusterFacts

__all__ = ["Discovery"]

log = logging.get_logger("permissions.discovery")
T = TypeVar("T")
LOOK_S = 20.0
_RETRY_S = 1.0
_EMBEDDED = "+bedplate"
RESYNC_LOOKS = 30
"""After so many looks every resource is looked at again, whatever the watches say."""
STRICT_GROUPS_SINCE = (1, 33)
_ADMISSION, _KYVERNO = "/apis/admissionregistration.k8s.io/v1", "/apis/kyverno.io/v1"


@dataclass(slots=True)
class Discovery:
    """Looks at the cluster from time to time. `on_facts` and `on_release` are called for every difference,
    `on_repaired` for an object that all users share and somebody else changed."""

    client: Client
    live: Live
    uses_policies: bool = True
    time: clock.Clock = field(default_factory=clock.SystemClock)
    name: str = "discovery"
    facts: ClusterFacts = field(default_factory=ClusterFacts)
    on_facts: Callable[[ClusterFacts], None] = lambda facts: None
    on_release: Callable[[str | None], None] = lambda release: None
    on_repaired: Callable[[RawObject, bool], None] = lambda target, is_new: None
    _told: str = ""
    _held: set[str] = field(default_factory=set)
    """Kinds that were as they should be."""

    async def run(self) -> None:
        """Look until cancelled."""
        looks = 0
        while True:
            await self.time.sleep(LOOK_S)
            looks += 1
            try:
                await self.look()
                self._told = ""
            except errors.BedplateError as err:
                if str(err) != self._told:
                    log.warning("discovery.failed", error=errors.describe(err))
                self._told = str(err)
            if looks % RESYNC_LOOKS == 0:
                self.on_release(None)

    async def learn(self) -> None:
        """Look until the server answered once."""
        await self._repeated(self.look)

    async def has_strict_groups(self) -> bool:
        """Whether pods have `supplementalGroupsPolicy`; asked until the server answered."""
        return (await self._repeated(self._version))[0] >= STRICT_GROUPS_SINCE

    async def _repeated(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await ask()
            except errors.BedplateError as err:
                log.warning("discovery.failed", error=errors.describe(err))
                await self.time.sleep(_RETRY_S)

    async def look(self) -> ClusterFacts:
        """One look; the facts are those of the whole cluster."""
        version, is_embedded = await self._version()
        has_strict_groups = version >= STRICT_GROUPS_SINCE
        served = await self._served(_ADMISSION)
        has_policies = self.uses_policies and policies.POLICIES.plural in served and not is_embedded
        if has_policies:
            for target in policies.objects(has_strict_groups=has_strict_groups):
                await self._ensure(target)
        has_kyverno = live.CLUSTER_POLICIES.plural in await self._served(_KYVERNO)
        if has_kyverno:
            await self._follow_policies()
        facts = ClusterFacts(has_kyverno, has_policies, has_strict_groups)
        if facts != self.facts:
            self.facts = facts
            log.info("discovery.facts", **msgspec.structs.asdict(facts))
            self.on_facts(facts)
        return facts

    async def _version(self) -> tuple[tuple[int, int], bool]:
        """The release, and whether this is the embedded API server, which stores policies and checks none."""
        answer = await self.client.request("GET", "/version")
        known: dict[str, Any] = msgspec.json.decode(answer.body)
        digits = ["".join(filter(str.isdigit, str(known.get(key, "")))) or "0" for key in ("major", "minor")]
        return (int(digits[0]), int(digits[1])), _EMBEDDED in str(known.get("gitVersion", ""))

    async def _served(self, path: str) -> set[str]:
        """The resources of a group; none when the server says that there is no such group."""
        try:
            answer = await self.client.request("GET", path)
        except kube_errors.NotFound:
            return set()
        except kube_errors.ApiError as err:
            if err.code == 404:
                return set()
            raise
        return {each["name"] for each in msgspec.json.decode(answer.body).get("resources") or ()}

    async def _ensure(self, target: RawObject) -> None:
        ref = policies.POLICIES if target["kind"] == policies.POLICIES.kind else policies.BINDINGS
        name = target["metadata"]["name"]
        try:
            current = await self.client.get(ref, name)
        except kube_errors.NotFound:
            current = {}
        if not live.matches(target, current):
            options: Any = {"type": PatchType.APPLY, "field_manager": permissions.FIELD_MANAGER, "force": True}
            await self.client.patch(ref, name, target, **options)
            log.info("discovery.policy_written", kind=target["kind"], name=name, is_new=not current)
            if ref.kind in self._held:
                self.on_repaired(target, not current)
        self._held.add(ref.kind)

    async def _follow_policies(self) -> None:
        listing = await self.client.list(live.CLUSTER_POLICIES, label_selector=live.SELECTOR)
        fresh = {each["metadata"]["name"]: each for each in listing.items}
        stale = self.live.policies
        self.live.policies = fresh
        for name in stale.keys() | fresh.keys():
            before, after = stale.get(name), fresh.get(name)
            if _version_of(before) != _version_of(after):
                known: Any = before or after
                self.on_release((known["metadata"].get("labels") or {}).get(permissions.LABEL_RELEASE, ""))


def _version_of(policy: RawObject | None) -> str:
    return str(policy["metadata"].get("resourceVersion", "")) if policy is not None else ""
