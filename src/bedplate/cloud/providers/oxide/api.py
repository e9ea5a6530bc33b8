"""Oxide's Region API as this provider uses it: one method per operation, named as the API names it.

In: values. Out: models. A body that does not fit the API's own document is a `Protocol` error. The one judgement made
here: `view_*` answer None when the API says, of the very object asked for, `404` with the code `ObjectNotFound`; every
other 404 is an error like any other (a wrong route, a proxy's page).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from bedplate.cloud.errors import CloudError
from bedplate.cloud.http import errors
from bedplate.cloud.http.client import Answer, Call, path_of
from bedplate.cloud.providers.oxide import models
from bedplate.core import clock
from bedplate.core.logging import get_logger

__all__ = ["Api", "Caller", "Credentials", "NameTaken", "Unreadable", "code_of", "is_absence"]

log = get_logger("cloud.oxide")
PAUSE_S = 10.0
T = TypeVar("T")
PAGE = 1000
MAX_PAGES = 10_000


class NameTaken(CloudError):
    """An object of that name already exists."""


class Unreadable(CloudError):
    """A success response whose body does not match the API's document."""


class Caller(Protocol):
    """The part of the shared HTTP client that is used here."""

    async def call(self, call: Call) -> Answer: ...


def code_of(error: errors.ApiError) -> str:
    """Oxide's own code of an error; empty when the answer has none."""
    code = error.body.get("error_code") if isinstance(error.body, dict) else None
    return code if isinstance(code, str) else ""


def is_absence(error: errors.ApiError) -> bool:
    """Whether the API says that an object is not there, and not merely that it cannot answer."""
    return isinstance(error, errors.NotFound) and code_of(error) == "ObjectNotFound"


class Api:
    """The operations, within one project."""

    def __init__(self, caller: Caller, project: str) -> None:
        self._caller = caller
        self._project = project

    # Who and where

    async def current_user_view(self) -> models.User:
        return await self._get(models.User, "current_user_view", "v1", "me")

    async def project_view(self) -> models.Project:
        return await self._get(models.Project, "project_view", "v1", "projects", self._project)

    # Instances

    async def instance_view(self, name_or_id: str, *, is_name: bool = False) -> models.Instance | None:
        query = (("project", self._project),) if is_name else ()
        return await self._view(models.Instance, "instance_view", ("v1", "instances", name_or_id), query)

    async def instance_list(self) -> list[models.Instance]:
        return await self._pages(models.Instance, "instance_list", ("v1", "instances"), project=self._project)

    async def instance_network_interface_list(self, instance: str) -> list[models.NetworkInterface]:
        return await self._pages(
            models.NetworkInterface,
            "instance_network_interface_list",
            ("v1", "network-interfaces"),
            instance=instance,
        )

    async def instance_external_ip_list(self, instance: str) -> list[models.ExternalIp]:
        path = ("v1", "instances", instance, "external-ips")
        page: models.Page[models.ExternalIp] = await self._get(
            models.Page[models.ExternalIp], "instance_external_ip_list", *path
        )
        return page.items

    async def vpc_list(self) -> list[models.Vpc]:
        return await self._pages(models.Vpc, "vpc_list", ("v1", "vpcs"), project=self._project)

    async def vpc_subnet_list(self, vpc: str) -> list[models.Subnet]:
        return await self._pages(models.Subnet, "vpc_subnet_list", ("v1", "vpc-subnets"), vpc=vpc)

    async def vpc_subnet_list_network_interfaces(self, subnet: str) -> list[models.NetworkInterface]:
        return await self._pages(
            models.NetworkInterface,
            "vpc_subnet_list_network_interfaces",
            ("v1", "vpc-subnets", subnet, "network-interfaces"),
        )

    # Floating IPs

    async def floating_ip_view(self, name_or_id: str, *, is_name: bool = False) -> models.FloatingIp | None:
        query = (("project", self._project),) if is_name else ()
        return await self._view(models.FloatingIp, "floating_ip_view", ("v1", "floating-ips", name_or_id), query)

    async def floating_ip_list(self) -> list[models.FloatingIp]:
        return await self._pages(models.FloatingIp, "floating_ip_list", ("v1", "floating-ips"), project=self._project)

    async def floating_ip_create(self, name: str, description: str, allocator: Mapping[str, Any]) -> models.FloatingIp:
        """Raises `NameTaken` when there is one of that name."""
        body = {"name": name, "description": description, "address_allocator": dict(allocator)}
        query = (("project", self._project),)
        call = Call("POST", path_of("v1", "floating-ips"), "floating_ip_create", query, body)
        return await self._name_floating_ip(call, name)

    async def floating_ip_update(self, id_: str, name: str | None, description: str | None) -> models.FloatingIp:
        """Raises `NameTaken` when another one has that name."""
        body = {key: value for key, value in (("name", name), ("description", description)) if value is not None}
        call = Call("PUT", path_of("v1", "floating-ips", id_), "floating_ip_update", (), body)
        return await self._name_floating_ip(call, name)

    async def _name_floating_ip(self, call: Call, name: str | None) -> models.FloatingIp:
        try:
            return _read(models.FloatingIp, await self._caller.call(call), call)
        except errors.ApiError as err:
            if code_of(err) == "ObjectAlreadyExists":
                raise NameTaken(f"the floating IP {name!r} already exists") from err
            raise

    async def floating_ip_attach(self, id_: str, instance: str) -> models.FloatingIp:
        body = {"kind": "instance", "parent": instance}
        call = Call("POST", path_of("v1", "floating-ips", id_, "attach"), "floating_ip_attach", (), body)
        return _read(models.FloatingIp, await self._caller.call(call), call)

    async def floating_ip_detach(self, id_: str) -> models.FloatingIp:
        call = Call("POST", path_of("v1", "floating-ips", id_, "detach"), "floating_ip_detach")
        return _read(models.FloatingIp, await self._caller.call(call), call)

    async def floating_ip_delete(self, id_: str) -> bool:
        """Delete it; False when the API says that there is none."""
        call = Call("DELETE", path_of("v1", "floating-ips", id_), "floating_ip_delete", expects="nothing")
        try:
            await self._caller.call(call)
        except errors.ApiError as err:
            if not is_absence(err):
                raise
            return False
        return True

    async def ip_pool_view(self, name_or_id: str) -> models.Pool | None:
        return await self._view(models.Pool, "ip_pool_view", ("v1", "ip-pools", name_or_id), ())

    # How

    async def _get(self, kind: type[T], operation: str, *path: str) -> T:
        call = Call("GET", path_of(*path), operation)
        return _read(kind, await self._caller.call(call), call)

    async def _view(
        self, kind: type[T], operation: str, path: tuple[str, ...], query: tuple[tuple[str, str], ...]
    ) -> T | None:
        call = Call("GET", path_of(*path), operation, query)
        try:
            return _read(kind, await self._caller.call(call), call)
        except errors.ApiError as err:
            if is_absence(err):
                return None
            raise

    async def _pages(self, kind: type[T], operation: str, path: tuple[str, ...], **query: str) -> list[T]:
        """The whole list; an error on any page is an error of the whole."""
        items: list[T] = []
        token: str | None = None
        for _ in range(MAX_PAGES):
            # By id: names change, and interfaces of two instances may have one; both would fall between two pages.
            asked = {**query, "sort_by": "id_ascending", "limit": str(PAGE)}
            if token is not None:
                asked["page_token"] = token
            call = Call("GET", path_of(*path), operation, tuple(asked.items()))
            page: models.Page[Any] = _read(models.Page[kind], await self._caller.call(call), call)  # type: ignore[valid-type]
            items += page.items
            if not page.next_page:
                return items
            token = page.next_page
        raise Unreadable(f"oxide: {operation}: the list has more than {MAX_PAGES} pages")


def _read(kind: type[T], answer: Answer, call: Call) -> T:
    try:
        return msgspec.convert(answer.data, kind)
    except (msgspec.ValidationError, ValueError) as err:
        raise Unreadable(f"oxide: {call.method} {call.path}: the answer is not a {call.operation}: {err}") from err


class Credentials:
    """Remembers that the cloud has accepted us. Until then every question asks it again, not more often than every
    ten seconds."""

    def __init__(self, api: Api, time: clock.Clock, project: str) -> None:
        self._api = api
        self._time = time
        self._project = project
        self._is_verified = False
        self._failure: CloudError | None = None
        self._asked_at = float("-inf")

    async def verify(self) -> None:
        """Raise while the cloud has not accepted the token and shown us the project."""
        if self._is_verified:
            return
        now = self._time.monotonic()
        if self._failure is not None and now < self._asked_at + PAUSE_S:
            raise self._failure
        self._asked_at = now
        try:
            user = await self._api.current_user_view()
            project = await self._project_view()
        except CloudError as err:
            self._failure = err
            raise
        self._is_verified = True
        log.info("oxide.verified", user=user.id, silo=user.silo_name, project=project)

    async def _project_view(self) -> str:
        try:
            return (await self._api.project_view()).name
        except errors.ApiError as err:
            if is_absence(err):
                raise CloudError(
                    f"oxide: there is no project {self._project!r} that this token can see",
                    hint="correct OXIDE_PROJECT, or use a token of the right silo",
                ) from err
            raise
