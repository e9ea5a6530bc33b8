"""The operations of the BMM REST API that the provider calls.

In: IDs and names. Out: models. Errors are those of the HTTP client; an answer of the right JSON type that is not what
was asked for (another ID, missing fields) is a `Protocol` error. Whether a 404 means absence is judged in `source`.

A list is read to its end. The header X-Pagination says how many items there are and how large its pages really are;
without it the list ends with the first short page. When the total changes on the way, or the pages together hold fewer
than it says, items may have slipped between two pages: the list is read once more from the start, and if that happens
again, it is incomplete (`IncompleteList`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from bedplate.cloud.http import errors
from bedplate.cloud.http.client import Answer, Call, Client, path_of
from bedplate.cloud.instancecache import IncompleteList
from bedplate.cloud.providers.nvidia_bmm import models
from bedplate.cloud.providers.nvidia_bmm.config import Config

__all__ = ["PAGE_SIZE", "Api", "Page", "Pagination", "page_query", "read_all"]

T = TypeVar("T")
PAGE_SIZE = 100
# A server that never comes to an end is broken, not large.
MOST_PAGES = 10_000


class Pagination(msgspec.Struct, frozen=True, rename="camel"):
    """The header X-Pagination."""

    page_number: int
    page_size: int
    total: int

    @staticmethod
    def of(headers: Mapping[str, str], number: int) -> Pagination | str | None:
        """The header's content; None without a header; a text that says what is wrong with it."""
        text = headers.get("x-pagination")
        if text is None:
            return None
        try:
            pagination = msgspec.json.decode(text.encode(), type=Pagination)
        except msgspec.DecodeError as err:
            return f"the header X-Pagination is not usable: {err}"
        if pagination.page_size < 1 or pagination.total < 0:
            return f"the header X-Pagination reports {pagination.total} in pages of {pagination.page_size}"
        if pagination.page_number != number:
            return f"page {pagination.page_number} was returned when page {number} was asked for"
        return pagination


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page and what its header says."""

    items: list[T]
    pagination: Pagination | None


async def read_all(fetch: Callable[[int], Awaitable[Page[T]]], key: Callable[[T], str]) -> list[T]:
    """All items, each once. Raises what `fetch` raises, and `IncompleteList` with what was found."""
    is_complete, items = await _read_once(fetch, key, is_last=False)
    if not is_complete:
        is_complete, items = await _read_once(fetch, key, is_last=True)
    if not is_complete:
        raise IncompleteList("the list changed while it was read, twice", list(items.values()))
    return list(items.values())


async def _read_once(
    fetch: Callable[[int], Awaitable[Page[T]]], key: Callable[[T], str], *, is_last: bool
) -> tuple[bool, dict[str, T]]:
    """Whether nothing disturbed the reading, and what was found; only the last reading goes on after a disturbance."""
    items: dict[str, T] = {}
    totals: set[int] = set()
    for number in range(1, MOST_PAGES):
        page = await fetch(number)
        items |= {key(item): item for item in page.items}
        pagination = page.pagination
        if pagination is None:
            if len(page.items) < PAGE_SIZE:
                # A header that vanishes half-way leaves its total unproven.
                return not totals, items
            continue
        totals.add(pagination.total)
        if len(totals) > 1 and not is_last:
            return False, items
        if number * pagination.page_size >= pagination.total:
            return len(totals) == 1 and len(items) >= pagination.total, items
    return False, items


def page_query(number: int, *pairs: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """The query of one page, in an order that new instances do not disturb."""
    return (*pairs, ("pageNumber", str(number)), ("pageSize", str(PAGE_SIZE)), ("orderBy", "CREATED_ASC"))


class Api:
    """One organisation's part of the API."""

    def __init__(self, client: Client, config: Config) -> None:
        self._client = client
        self._base = path_of(config.api_version, "org", config.org, config.api_name)

    async def instance(self, instance_id: str) -> models.Instance:
        """get-instance. `NotFound` carries the body to judge."""
        path = self._base + path_of("instance", instance_id)
        instance = await self._object(models.Instance, "get-instance", path)
        if instance.key != instance_id.lower():
            raise errors.Protocol(self._subject(path), f"asked for instance {instance_id}, got {instance.id!r}")
        return instance

    async def instances(self, *filters: tuple[str, str]) -> list[models.Instance]:
        """get-all-instance, all pages. Raises `IncompleteList` when they do not fit together."""
        path = f"{self._base}/instance"

        async def fetch(number: int) -> Page[models.Instance]:
            call = Call("GET", path, "get-all-instance", query=page_query(number, *filters), expects="array")
            answer = await self._client.call(call)
            pagination = Pagination.of(answer.headers, number)
            if isinstance(pagination, str):
                raise errors.Protocol(self._subject(path, answer), pagination)
            return Page([self._read(models.Instance, item, path, answer) for item in answer.data], pagination)

        return await read_all(fetch, lambda instance: instance.key)

    async def instance_type(self, type_id: str) -> models.InstanceType:
        """get-instance-type."""
        path = self._base + path_of("instance", "type", type_id)
        return await self._object(models.InstanceType, "get-instance-type", path)

    async def site(self, site_id: str) -> models.Site:
        """get-site."""
        return await self._object(models.Site, "get-site", self._base + path_of("site", site_id))

    async def machine(self, machine_id: str) -> models.Machine:
        """get-machine."""
        return await self._object(models.Machine, "get-machine", self._base + path_of("machine", machine_id))

    async def current_tenant(self) -> models.Tenant:
        """get-current-tenant: whom the token speaks for."""
        return await self._object(models.Tenant, "get-current-tenant", f"{self._base}/tenant/current")

    async def server_version(self) -> str:
        """get-metadata: the server's version."""
        answer = await self._client.call(Call("GET", f"{self._base}/metadata", "get-metadata"))
        return str(answer.data.get("version", ""))

    async def _object(self, kind: type[T], operation: str, path: str) -> T:
        answer = await self._client.call(Call("GET", path, operation))
        return self._read(kind, answer.data, path, answer)

    def _read(self, kind: type[T], data: object, path: str, answer: Answer) -> T:
        value = models.read(kind, data)
        if isinstance(value, str):
            raise errors.Protocol(self._subject(path, answer), f"the answer is not a {kind.__name__}: {value}")
        return value

    def _subject(self, path: str, answer: Answer | None = None) -> errors.Subject:
        status = answer.status if answer is not None else 200
        return errors.Subject(self._client.options.provider, "GET", path, status)
