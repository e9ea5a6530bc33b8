"""The operations of the BMM REST API that the provider calls.

In: IDs and names. Out: models. Errors are those of the HTTP client; an answer of the right JSON type that is not what
was asked for (another ID, missing fields) is a `Protocol` error. Whether a 404 means absence is judged in `source`.
"""

from __future__ import annotations

from typing import TypeVar

from bedplate.cloud.http import errors
from bedplate.cloud.http.calls import Answer, Call, path_of
from bedplate.cloud.http.client import Client
from bedplate.cloud.providers.nvidia_bmm import models, pages
from bedplate.cloud.providers.nvidia_bmm.config import Config

__all__ = ["Api"]

T = TypeVar("T")


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

        async def fetch(number: int) -> pages.Page[models.Instance]:
            call = Call("GET", path, "get-all-instance", query=pages.query(number, *filters), expects="array")
            answer = await self._client.call(call)
            pagination = pages.Pagination.of(answer.headers, number)
            if isinstance(pagination, str):
                raise errors.Protocol(self._subject(path, answer), pagination)
            return pages.Page([self._read(models.Instance, item, path, answer) for item in answer.data], pagination)

        return await pages.read_all(fetch, lambda instance: instance.key)

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
