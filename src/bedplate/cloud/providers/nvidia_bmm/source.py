"""Where the instance cache gets BMM's instances from, and the only place that declares one of them absent.

In: the API. Out: instances, or `InstanceNotFound` by the table of `of_not_found`: a 404 that names the instance, or one
that names nothing while a complete list of the same pass lacks it too. Every other error passes through as it is. BMM
answers 404 for an instance that is gone, but also for an unknown path, and proxies answer so for reasons of their own;
only a body of BMM's own form that speaks of the instance counts.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from bedplate.cloud.errors import CloudError, InstanceNotFound
from bedplate.cloud.http import errors
from bedplate.cloud.instancecache import SingleFlight
from bedplate.cloud.providers.nvidia_bmm.api import Api
from bedplate.cloud.providers.nvidia_bmm.config import Config
from bedplate.cloud.providers.nvidia_bmm.models import Instance
from bedplate.cloud.providers.nvidia_bmm.providerid import is_uuid
from bedplate.core import clock
from bedplate.core.logging import get_logger

__all__ = ["BmmSource", "Shelf", "Verdict", "of_not_found"]

SOURCE = "carbide"
_ROUTE = "requested path"
# Something else could not be found on the way to the instance: then a list has to confirm it.
_OTHER_THING = re.compile(
    r"\b(instance\s*types?|sites?|tenants?|orgs?|organi[sz]ations?|machines?|vpcs?|paths?|routes?)\b"
)
T = TypeVar("T")
log = get_logger("cloud.nvidia-bmm")
# A pass of the lifecycle controller takes its period, five seconds: lists of the same pass are not older.
SAME_PASS_S = 5.0
SITE_S = 600.0


class Verdict(enum.Enum):
    """What is known after a 404."""

    ABSENT = "the API reports that this specific instance could not be found"
    ABSENT_IF_UNLISTED = "the API could not find something; a complete list read now must also lack the instance"
    NO_ANSWER = "this is not a response about an instance: the endpoint, the API's name or its version is wrong"


def of_not_found(body: Any) -> Verdict:
    """Judge the body of a 404 that answered `get-instance`."""
    if not isinstance(body, dict) or body.get("source") != SOURCE:
        return Verdict.NO_ANSWER
    message = body.get("message")
    if not isinstance(message, str):
        return Verdict.NO_ANSWER
    text = message.lower()
    if not text.strip() or _ROUTE in text:
        return Verdict.NO_ANSWER
    if "instance" in text and "find" in text and not _OTHER_THING.search(text):
        return Verdict.ABSENT
    return Verdict.ABSENT_IF_UNLISTED


class Shelf(Generic[T]):
    """Things that change rarely (types, sites, machines), by key: each is read once and kept for `keep_s`.

    When it cannot be read again the old one is used on: a type's name does not change because the cloud is down.
    """

    def __init__(self, read: Callable[[str], Awaitable[T]], *, keep_s: float, time: clock.Clock) -> None:
        self._read = read
        self._keep_s = keep_s
        self._time = time
        self._kept: dict[str, tuple[float, T]] = {}
        self._flights = SingleFlight()

    async def get(self, key: str) -> T:
        """The thing; raises what reading it raises, when there is no old one."""
        kept = self._kept.get(key)
        if kept is not None and self._time.monotonic() < kept[0]:
            return kept[1]
        try:
            return await self._flights.run(key, lambda: self._fetch(key))
        except CloudError:
            if kept is None:
                raise
            return kept[1]

    async def _fetch(self, key: str) -> T:
        value = await self._read(key)
        self._kept[key] = (self._time.monotonic() + self._keep_s, value)
        return value


class BmmSource:
    """The `Source` of the cache. `sites`: the sites that nodes name in their provider IDs, besides the configured."""

    def __init__(self, api: Api, config: Config, sites: Callable[[], Iterable[str]], time: clock.Clock) -> None:
        self._api = api
        self._config = config
        self._sites = sites
        self._time = time
        self._flights = SingleFlight()
        self._everything: tuple[float, frozenset[str]] = (float("-inf"), frozenset())
        self._is_site = Shelf(self._can_read_site, keep_s=SITE_S, time=time)

    def key(self, instance: Instance) -> str:
        return instance.key

    def name(self, instance: Instance) -> str:
        return instance.name or ""

    async def get(self, key: str) -> Instance:
        begun_at = self._time.monotonic()
        try:
            return await self._api.instance(key)
        except errors.NotFound as err:
            not_found, verdict = err, of_not_found(err.body)
        if verdict is Verdict.NO_ANSWER:
            not_found.hint = "check endpoint, apiName, apiVersion and orgName"
            raise not_found
        if verdict is Verdict.ABSENT_IF_UNLISTED and key in await self._ids(begun_at - SAME_PASS_S):
            raise CloudError(f"nvidia-bmm lists instance {key}, but does not find it: {not_found.message}")
        log.v(2).info("bmm.instance_absent", instance=key, verdict=verdict.name, answer=not_found.server_message)
        raise InstanceNotFound(f"instance {key} does not exist in nvidia-bmm: {not_found.server_message}")

    async def _ids(self, not_before: float) -> frozenset[str]:
        """The IDs in a complete list of all sites that was begun at that moment or later."""
        while self._everything[0] < not_before:
            await self._flights.run("everything", self._list_everything)
        return self._everything[1]

    async def _list_everything(self) -> None:
        begun_at = self._time.monotonic()
        self._everything = (begun_at, frozenset(instance.key for instance in await self._api.instances()))

    async def list(self) -> Sequence[Instance]:
        """All instances of the configured site and of those other sites that nodes name and the API knows."""
        own = self._config.site_id
        if not is_uuid(own):
            # The API refuses such a filter; an ID of this kind can only be a slip, and all sites hold ours too.
            return await self._api.instances()
        # The API refuses the whole list when one site is unknown to it, so each is asked for first.
        others = sorted({site.lower() for site in self._sites() if is_uuid(site)} - {own.lower()})
        known = [own, *[site for site in others if await self._is_known(site)]]
        return await self._api.instances(*(("siteId", site) for site in known))

    async def _is_known(self, site_id: str) -> bool:
        try:
            return await self._is_site.get(site_id)
        except CloudError:
            # It cannot be told now: its instances are read one by one, and the others' list is not held up.
            return False

    async def _can_read_site(self, site_id: str) -> bool:
        try:
            await self._api.site(site_id)
        except (errors.NotFound, errors.Forbidden, errors.Invalid) as err:
            log.warning("bmm.site_unreadable", site=site_id, reason=str(err))
            return False
        return True

    async def search(self, name: str) -> Sequence[Instance]:
        """All of that name at the configured site. The filter may be loose: the name is compared here."""
        instances = await self._api.instances(("siteId", self._config.site_id), ("name", name))
        return [instance for instance in instances if instance.name == name]

    async def search_ips(self, ips: Sequence[str]) -> Sequence[Instance]:
        """All at the configured site that the API gives for these addresses."""
        return await self._api.instances(("siteId", self._config.site_id), *(("ipAddress", ip) for ip in ips))
