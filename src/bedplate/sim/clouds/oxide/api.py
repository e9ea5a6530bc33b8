"""The operations of the Oxide Region API that a cloud controller manager calls, and those to drive instances.

In: requests that have passed the token's check. Out: replies as the published document has them. The server is strict
where the real one is: an object by name needs its project, one by ID must not have it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from bedplate.sim.clouds.exchange import NO_CODE, Refused, Reply, Request, Route, json_reply
from bedplate.sim.clouds.index import Index, Row
from bedplate.sim.clouds.oxide import paging, payloads

if TYPE_CHECKING:
    from bedplate.sim.clouds.oxide.cloud import OxideCloud

__all__ = ["NEWEST_VERSION", "OLDEST_VERSION", "OxideApi"]

NEWEST_VERSION, OLDEST_VERSION = (2026072800, 0, 0), (2025112000, 0, 0)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


class OxideApi:
    """Handlers over one `OxideCloud`."""

    def __init__(self, cloud: OxideCloud) -> None:
        self._cloud = cloud

    def routes(self) -> list[Route]:
        instance, floating = "/v1/instances/{instance}", "/v1/floating-ips/{floating_ip}"
        return [
            Route("GET", "/v1/ping", "ping", lambda _: json_reply(200, {"status": "ok"}), needs_token=False),
            Route("GET", "/v1/me", "current_user_view", self._me),
            Route("GET", "/v1/projects", "project_list", self._projects),
            Route("GET", "/v1/projects/{project}", "project_view", self._project),
            Route("GET", "/v1/instances", "instance_list", self._instances),
            Route("GET", instance, "instance_view", lambda r: Reply(200, self._instance(r).encoded)),
            Route("DELETE", instance, "instance_delete", self._delete_instance),
            Route("POST", f"{instance}/start", "instance_start", lambda r: self._drive(r, "start")),
            Route("POST", f"{instance}/stop", "instance_stop", lambda r: self._drive(r, "stop")),
            Route("POST", f"{instance}/reboot", "instance_reboot", lambda r: self._drive(r, "reboot")),
            Route("GET", f"{instance}/external-ips", "instance_external_ip_list", self._external_ips),
            Route("GET", "/v1/network-interfaces", "instance_network_interface_list", self._interfaces),
            Route("GET", "/v1/vpcs", "vpc_list", self._vpcs),
            Route("GET", "/v1/vpc-subnets", "vpc_subnet_list", self._subnets),
            Route(
                "GET",
                "/v1/vpc-subnets/{subnet}/network-interfaces",
                "vpc_subnet_list_network_interfaces",
                self._subnet_interfaces,
            ),
            Route("GET", "/v1/floating-ips", "floating_ip_list", self._floating_ips),
            Route("POST", "/v1/floating-ips", "floating_ip_create", self._create),
            Route("GET", floating, "floating_ip_view", lambda r: Reply(200, self._floating_ip(r).encoded)),
            Route("PUT", floating, "floating_ip_update", self._update),
            Route("DELETE", floating, "floating_ip_delete", self._delete),
            Route("POST", f"{floating}/attach", "floating_ip_attach", self._attach),
            Route("POST", f"{floating}/detach", "floating_ip_detach", self._detach),
            Route("GET", "/v1/ip-pools", "ip_pool_list", self._pools),
            Route("GET", "/v1/ip-pools/{pool}", "ip_pool_view", self._pool),
        ]

    @staticmethod
    def check_version(request: Request) -> None:
        """The API-Version header: without one the newest is meant; one the server does not have is refused."""
        text = request.headers.get("API-Version")
        if text is None:
            return
        match = _VERSION.fullmatch(text)
        if match is None:
            raise _malformed(f'bad value for header "api-version": {text}')
        version = tuple(int(part) for part in match.groups())
        if version > NEWEST_VERSION:
            raise _malformed(f"server does not support this API version: {text}")
        if version < OLDEST_VERSION:
            raise Refused(404, "", code="route")

    # Reading

    def _me(self, request: Request) -> Reply:
        cloud = self._cloud
        identity = payloads.project(cloud.user_id, "", next(iter(cloud.projects)).data["time_created"])
        times = {key: identity[key] for key in ("time_created", "time_modified")}
        person = {"id": cloud.user_id, "display_name": "ccm", "silo_id": cloud.silo_id, "silo_name": "simulated"}
        return json_reply(200, {**person, **times, "fleet_viewer": False, "silo_admin": False})

    def _projects(self, request: Request) -> Reply:
        return paging.page(request, self._cloud.projects, self._lag(), ("projects",), lambda _: True)

    def _project(self, request: Request) -> Reply:
        return Reply(200, self._named(self._cloud.projects, request.params["project"], "project").encoded)

    def _instances(self, request: Request) -> Reply:
        project = self._scope(request)
        return paging.page(
            request, self._cloud.instances, self._lag(), (project,), lambda row: bool(row.data["project_id"] == project)
        )

    def _external_ips(self, request: Request) -> Reply:
        return json_reply(200, {"items": self._cloud.external_ips_of(self._instance(request).key), "next_page": None})

    def _interfaces(self, request: Request) -> Reply:
        ref = request.query.get("instance")
        if ref is None and "page_token" not in request.query:
            raise _malformed("unable to parse query string: missing field `instance`")
        owner = self._find_instance(ref or "", request.query.get("project"))
        rows = self._cloud.interfaces_of(owner.key, max(self._lag(), request.stale_s))
        return paging.page_of(request, rows, lambda _: str(owner.data["name"]))

    def _subnet_interfaces(self, request: Request) -> Reply:
        cloud, ref = self._cloud, request.params["subnet"]
        if payloads.UUID.fullmatch(ref):
            if "vpc" in request.query:
                raise _invalid("when providing subnet as an ID vpc should not be specified")
        elif "vpc" not in request.query:
            raise _invalid("subnet should either be UUID or vpc should be specified")
        if ref.lower() not in (cloud.subnet_id, "default"):
            raise _not_found("vpc-subnet", ref)

        def owner(row: Row) -> str:
            instance = cloud.instances.get(row.data["instance_id"])
            return str(instance.data["name"]) if instance else ""

        def is_wanted(row: Row) -> bool:
            return bool(row.data["subnet_id"] == cloud.subnet_id)

        return paging.page(request, cloud.interfaces, self._lag(), ("subnet",), is_wanted, owner)

    def _vpcs(self, request: Request) -> Reply:
        self._scope(request)
        cloud = self._cloud
        vpc = payloads.project(cloud.vpc_id, "default", next(iter(cloud.projects)).data["time_created"])
        more = {
            "project_id": cloud.project_id,
            "dns_name": "default",
            "system_router_id": cloud.silo_id,
            "ipv6_prefix": "fd00:1:2::/48",
        }
        return json_reply(200, {"items": [{**vpc, **more}], "next_page": None})

    def _subnets(self, request: Request) -> Reply:
        cloud, vpc = self._cloud, request.query.get("vpc")
        if vpc is None:
            raise _malformed("unable to parse query string: missing field `vpc`")
        if vpc.lower() not in (cloud.vpc_id, "default"):
            raise _not_found("vpc", vpc)
        subnet = payloads.project(cloud.subnet_id, "default", next(iter(cloud.projects)).data["time_created"])
        more = {"vpc_id": cloud.vpc_id, "ipv4_block": "172.30.0.0/16", "ipv6_block": "fd00:1:2:3::/64"}
        return json_reply(200, {"items": [{**subnet, **more, "custom_router_id": None}], "next_page": None})

    def _pools(self, request: Request) -> Reply:
        version = request.query.get("ip_version")
        return paging.page(
            request,
            self._cloud.pool_views,
            self._lag(),
            ("pools", version or ""),
            lambda row: version in (None, row.data["ip_version"]),
        )

    def _pool(self, request: Request) -> Reply:
        return Reply(200, self._named(self._cloud.pool_views, request.params["pool"], "ip-pool").encoded)

    def _floating_ips(self, request: Request) -> Reply:
        project = self._scope(request)
        return paging.page(
            request,
            self._cloud.floating_ips,
            self._lag(),
            (project,),
            lambda row: bool(row.data["project_id"] == project),
        )

    # Changing

    def _delete_instance(self, request: Request) -> Reply:
        row = self._instance(request)
        if row.data["run_state"] not in ("stopped", "failed"):
            raise _invalid(f'instance cannot be deleted in state "{row.data["run_state"]}"')
        self._cloud.remove(row.key)
        return Reply(204)

    def _drive(self, request: Request, verb: str) -> Reply:
        row = self._instance(request)
        getattr(self._cloud, verb)(row.key)
        changed = self._cloud.instances.get(row.key)
        return Reply(202, changed.encoded if changed else row.encoded)

    def _create(self, request: Request) -> Reply:
        project, body = self._scope(request), _body(request)
        for field in ("name", "description"):
            if not isinstance(body.get(field), str):
                raise _malformed(f"unable to parse JSON body: missing field `{field}`")
        _check_name(body["name"])
        allocator = body.get("address_allocator") or {"type": "auto"}
        _check_allocator(allocator)
        return Reply(201, self._cloud.floating.create(project, body["name"], body["description"], allocator).encoded)

    def _update(self, request: Request) -> Reply:
        row, body = self._floating_ip(request), _body(request)
        for field in ("name", "description"):
            if not isinstance(body.get(field), str | None):
                raise _malformed(f"unable to parse JSON body: {field}: invalid type, expected a string")
        if body.get("name") is not None:
            _check_name(body["name"])
        return Reply(200, self._cloud.floating.update(row, body.get("name"), body.get("description")).encoded)

    def _attach(self, request: Request) -> Reply:
        row, body = self._floating_ip(request), _body(request)
        if body.get("kind") != "instance":
            raise _malformed("unable to parse JSON body: kind: unknown variant, expected `instance`")
        if not isinstance(body.get("parent"), str):
            raise _malformed("unable to parse JSON body: missing field `parent`")
        instance = self._find_instance(body["parent"], request.query.get("project"), is_parent=True)
        return Reply(202, self._cloud.floating.attach(row, instance).encoded)

    def _detach(self, request: Request) -> Reply:
        return Reply(202, self._cloud.floating.detach(self._floating_ip(request)).encoded)

    def _delete(self, request: Request) -> Reply:
        self._cloud.floating.delete(self._floating_ip(request))
        return Reply(204)

    # Finding

    def _lag(self) -> float:
        return self._cloud.conditions.list_lag_s

    def _named(self, index: Index, ref: str, kind: str) -> Row:
        row = index.get(ref.lower()) or next((named for named in index if named.data["name"] == ref), None)
        if row is None:
            raise _not_found(kind, ref)
        return row

    def _scope(self, request: Request) -> str:
        ref = request.query.get("project")
        if ref is None:
            raise _malformed("unable to parse query string: missing field `project`")
        return self._named(self._cloud.projects, ref, "project").key

    def _instance(self, request: Request) -> Row:
        return self._find_instance(request.params["instance"], request.query.get("project"))

    def _find_instance(self, ref: str, project: str | None, *, is_parent: bool = False) -> Row:
        if payloads.UUID.fullmatch(ref):
            if project is not None and not is_parent:
                raise _invalid("when providing instance as an ID project should not be specified")
            instance = self._cloud.instances.get(ref.lower())
        elif project is None:
            raise _invalid("instance should either be UUID or project should be specified")
        else:
            instance = self._cloud.instance_named(self._named(self._cloud.projects, project, "project").key, ref)
        if instance is None:
            raise _not_found("instance", ref)
        return instance

    def _floating_ip(self, request: Request) -> Row:
        ref, project = request.params["floating_ip"], request.query.get("project")
        if payloads.UUID.fullmatch(ref):
            if project is not None:
                raise _invalid("when providing floating_ip as an ID project should not be specified")
            row = self._cloud.floating_ips.get(ref.lower())
        elif project is None:
            raise _invalid("floating_ip should either be UUID or project should be specified")
        else:
            row = self._cloud.floating_ip_named(self._named(self._cloud.projects, project, "project").key, ref)
        if row is None:
            raise _not_found("floating-ip", ref)
        return row


def _invalid(message: str) -> Refused:
    return Refused(400, message, code="InvalidRequest")


def _malformed(message: str) -> Refused:
    """What the HTTP layer refuses before the API sees it has no code."""
    return Refused(400, message, code=NO_CODE)


def _not_found(kind: str, ref: str) -> Refused:
    word = "id" if payloads.UUID.fullmatch(ref) else "name"
    return Refused(404, f'not found: {kind} with {word} "{ref}"', code="ObjectNotFound")


def _body(request: Request) -> dict[str, Any]:
    try:
        tree = msgspec.json.decode(request.body)
    except msgspec.DecodeError as err:
        raise _malformed(f"unable to parse JSON body: {err}") from err
    if not isinstance(tree, dict):
        raise _malformed("unable to parse JSON body: invalid type, expected a map")
    return tree


def _check_name(name: str) -> None:
    if len(name) > 63 or not payloads.NAME.fullmatch(name) or payloads.UUID.fullmatch(name):
        raise _malformed(
            "unable to parse JSON body: name: names begin with a lower-case letter, hold letters, digits and dashes, "
            "do not end with a dash, have at most 63 characters and are not UUIDs"
        )


def _check_allocator(allocator: object) -> None:
    """The shape of an AddressAllocator; what it asks for is the pools' business."""
    problem = "unable to parse JSON body: address_allocator: "
    if not isinstance(allocator, Mapping) or allocator.get("type") not in ("explicit", "auto"):
        raise _malformed(problem + "unknown variant, expected `explicit` or `auto`")
    if allocator["type"] == "explicit":
        try:
            ipaddress.ip_address(allocator.get("ip", ""))
        except ValueError:
            raise _malformed(problem + "ip: invalid IP address syntax") from None
        return
    selector = allocator.get("pool_selector") or {"type": "auto"}
    if not isinstance(selector, Mapping) or selector.get("type") not in ("explicit", "auto"):
        raise _malformed(problem + "pool_selector: unknown variant, expected `explicit` or `auto`")
    if selector["type"] == "explicit" and not isinstance(selector.get("pool"), str):
        raise _malformed(problem + "pool_selector: missing field `pool`")
    if selector["type"] == "auto" and selector.get("ip_version") not in (None, "v4", "v6"):
        raise _malformed(problem + "pool_selector.ip_version: unknown variant, expected `v4` or `v6`")
