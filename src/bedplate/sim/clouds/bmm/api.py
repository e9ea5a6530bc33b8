"""The BMM REST operations that a cloud controller manager calls, and a few for observers.

In: requests that have passed token, organisation and role checks. Out: replies as the published document has them,
with the status codes and texts of the server where the document is silent (400, 404, 429).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote_plus

from bedplate.sim.clouds.bmm import payloads
from bedplate.sim.clouds.exchange import Refused, Reply, Request, Route, encode, json_reply
from bedplate.sim.clouds.index import Index, Row

if TYPE_CHECKING:
    from bedplate.sim.clouds.bmm.cloud import BmmCloud

__all__ = ["BmmApi"]

VERSION = "1.0.6"
MAX_PAGE_SIZE, DEFAULT_PAGE_SIZE = 100, 20
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_RELATIONS = (
    "InfrastructureProvider",
    "Tenant",
    "Site",
    "InstanceType",
    "Allocation",
    "VPC",
    "OperatingSystem",
    "NetworkSecurityGroup",
)
# Query parameters that may be given several times: the field they are compared with, and whether it holds UUIDs.
_FILTERS = {
    "infrastructureProviderId": ("infrastructureProviderId", True),
    "siteId": ("siteId", True),
    "vpcId": ("vpcId", True),
    "instanceTypeId": ("instanceTypeId", True),
    "operatingSystemId": ("operatingSystemId", True),
    "machineId": ("machineId", False),
    "networkSecurityGroupId": ("networkSecurityGroupId", False),
    "status": ("status", False),
}
_ORDERS: dict[str, Callable[[Row], Any]] = {
    "NAME": lambda row: row.data["name"],
    "STATUS": lambda row: row.data["status"],
    "CREATED": lambda row: row.data["created"],
    "UPDATED": lambda row: row.data["updated"],
    "MACHINE_ID": lambda row: row.data.get("machineId") or "",
    "TENANT_ORG_DISPLAY_NAME": lambda row: row.data.get("tenantId", ""),
    "INSTANCE_TYPE_NAME": lambda row: row.data.get("instanceTypeId", ""),
    "HAS_INFINIBAND": lambda row: bool(row.data.get("infinibandInterfaces")),
}


class BmmApi:
    """Handlers over one `BmmCloud`."""

    def __init__(self, cloud: BmmCloud) -> None:
        self._cloud = cloud

    def routes(self) -> list[Route]:
        base = f"/v2/org/{{org}}/{self._cloud.api_name}"
        return [
            Route("GET", f"{base}/instance", "get-all-instance", self._instances),
            Route("GET", f"{base}/instance/{{instanceId}}", "get-instance", self._instance),
            Route("DELETE", f"{base}/instance/{{instanceId}}", "delete-instance", self._delete_instance),
            Route("GET", f"{base}/instance/type", "get-all-instance-type", self._instance_types),
            Route("GET", f"{base}/instance/type/{{instanceTypeId}}", "get-instance-type", self._instance_type),
            Route("GET", f"{base}/site", "get-all-site", self._sites),
            Route("GET", f"{base}/site/{{siteId}}", "get-site", self._site),
            Route("GET", f"{base}/tenant/current", "get-current-tenant", self._tenant),
            Route("GET", f"{base}/machine/{{machineId}}", "get-machine", self._machine),
            Route("GET", f"{base}/metadata", "get-metadata", self._metadata),
            Route("GET", f"{base}/user/current", "get-user", self._user),
            Route("POST", "/oauth2/token", "token", self._token, needs_token=False),
        ]

    def _instance(self, request: Request) -> Reply:
        row = self._owned_instance(request)
        relation = request.query.get("includeRelation")
        if relation is not None and relation not in _RELATIONS:
            raise Refused(400, f"Invalid includeRelation value in query: {relation}")
        return Reply(200, row.encoded)

    def _delete_instance(self, request: Request) -> Reply:
        row = self._owned_instance(request)
        self._cloud.terminate(row.key)
        return Reply(202)

    def _owned_instance(self, request: Request) -> Row:
        identifier = request.params["instanceId"]
        if not _UUID.fullmatch(identifier):
            raise Refused(400, "Invalid Instance ID in URL")
        row = self._cloud.instances.get(identifier.lower())
        if row is None:
            raise Refused(404, "Could not find Instance with specified ID")
        if row.data["tenantId"] != self._cloud.tenant_id:
            raise Refused(403, "Instance does not belong to current Tenant")
        return row

    def _instances(self, request: Request) -> Reply:
        cloud, query = self._cloud, request.query
        filters = {name: frozenset(query.getall(name)) for name in _FILTERS if name in query}
        self._check_filters(filters)
        name, text = query.get("name", ""), query.get("query", "").lower()
        addresses = frozenset(query.getall("ipAddress", []))

        def is_wanted(row: Row) -> bool:
            data = row.data
            return (
                data["tenantId"] == cloud.tenant_id
                and all(data[_FILTERS[key][0]] in values for key, values in filters.items())
                and (not name or data["name"] == name)
                and (not addresses or any(addresses & set(each["ipAddresses"]) for each in data["interfaces"]))
                and (not text or _mentions(data, text))
            )

        key = (tuple(sorted(filters.items())), name, text, addresses)
        return self._page(request, cloud.instances, key, is_wanted)

    def _check_filters(self, filters: dict[str, frozenset[str]]) -> None:
        for name, values in filters.items():
            if bad := [value for value in values if _FILTERS[name][1] and not _UUID.fullmatch(value)]:
                raise Refused(400, f"Invalid {name} {bad[0]} in query")
        if any(status not in payloads.STATUSES for status in filters.get("status", ())):
            raise Refused(400, "Invalid Status value in query")
        if any(site not in self._cloud.sites for site in filters.get("siteId", ())):
            raise Refused(404, "Could not find one or more Sites specified in query")

    def _page(self, request: Request, index: Index, key: Any, is_wanted: Callable[[Row], bool]) -> Reply:
        number = _whole(request, "pageNumber", 1, 2**31)
        size = _whole(request, "pageSize", DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
        order = request.query.get("orderBy")
        field, _, direction = (order or "CREATED_ASC").rpartition("_")
        if field not in _ORDERS or direction not in ("ASC", "DESC"):
            raise Refused(400, "Failed to validate pagination request data", data={"orderBy": "is not valid"})
        lag_s = max(self._cloud.conditions.list_lag_s, request.stale_s)
        choose = partial(_choose, is_wanted=is_wanted, field=field, is_reversed=direction == "DESC")
        rows = index.select((key, order), lag_s, choose)
        if request.dropped:
            rows = [row for row in rows if not request.is_dropped(row.data["name"])]
        page = rows[(number - 1) * size : number * size]
        pagination = {"pageNumber": number, "pageSize": size, "total": len(rows), "orderBy": order}
        body = b"[" + b",".join([row.encoded for row in page]) + b"]"
        return Reply(200, body, headers={"X-Pagination": encode(pagination).decode()})

    def _instance_types(self, request: Request) -> Reply:
        site_id, tenant_id = request.query.get("siteId"), request.query.get("tenantId")
        if site_id is None or not _UUID.fullmatch(site_id):
            raise Refused(400, "Invalid Site ID in query")
        if tenant_id is not None and tenant_id != self._cloud.tenant_id:
            raise Refused(403, "Tenant ID in query does not match the Tenant of org")
        return self._page(
            request, self._cloud.instance_types, ("type", site_id), lambda row: bool(row.data["siteId"] == site_id)
        )

    def _instance_type(self, request: Request) -> Reply:
        return self._view(request, self._cloud.instance_types, "instanceTypeId", "InstanceType", "Instance Type")

    def _sites(self, request: Request) -> Reply:
        statuses = frozenset(request.query.getall("status", []))
        return self._page(
            request, self._cloud.sites, ("site", statuses), lambda row: not statuses or row.data["status"] in statuses
        )

    def _site(self, request: Request) -> Reply:
        return self._view(request, self._cloud.sites, "siteId", "Site", "Site")

    def _machine(self, request: Request) -> Reply:
        row = self._cloud.machines.get(request.params["machineId"])
        if row is None:
            raise Refused(404, "Could not find Machine with specified ID")
        if row.data["tenantId"] != self._cloud.tenant_id:
            raise Refused(403, "Machine details can only be retrieved by Tenants who have an associated Instance")
        return Reply(200, row.encoded)

    def _view(self, request: Request, index: Index, param: str, word: str, words: str) -> Reply:
        identifier = request.params[param]
        if not _UUID.fullmatch(identifier):
            raise Refused(400, f"Invalid {words} ID in URL")
        row = index.get(identifier.lower())
        if row is None:
            raise Refused(404, f"Could not find {word} with specified ID")
        return Reply(200, row.encoded)

    def _tenant(self, request: Request) -> Reply:
        cloud = self._cloud
        created = next(iter(cloud.sites)).data["created"]
        tenant = {"id": cloud.tenant_id, "org": cloud.org, "orgDisplayName": cloud.org.title()}
        capabilities = {"targetedInstanceCreation": False}
        return json_reply(200, {**tenant, "created": created, "updated": created, "capabilities": capabilities})

    def _metadata(self, request: Request) -> Reply:
        return json_reply(200, {"version": VERSION, "buildTime": "2026-01-01T00:00:00Z"})

    def _user(self, request: Request) -> Reply:
        cloud = self._cloud
        created = next(iter(cloud.sites)).data["created"]
        person = {"id": cloud.tenant_id, "email": "ccm@example.com", "firstName": "Cloud", "lastName": "Controller"}
        return json_reply(200, {**person, "created": created, "updated": created})

    def _token(self, request: Request) -> Reply:
        """OAuth 2 client credentials, in the body or by HTTP Basic authentication."""
        form = {name: values[0] for name, values in parse_qs(request.body.decode(errors="replace")).items()}
        if form.get("grant_type") != "client_credentials":
            return json_reply(400, {"error": "unsupported_grant_type"})
        if _credentials(request, form) != (self._cloud.client_id, self._cloud.client_secret):
            return json_reply(401, {"error": "invalid_client"})
        life_s = self._cloud.conditions.token_life_s
        answer: dict[str, Any] = {"access_token": self._cloud.new_token(), "token_type": "Bearer"}
        if life_s is not None:
            answer["expires_in"] = int(life_s)
        if "scope" in form:
            answer["scope"] = form["scope"]
        return json_reply(200, answer, {"Cache-Control": "no-store"})


def _choose(rows: Iterable[Row], *, is_wanted: Callable[[Row], bool], field: str, is_reversed: bool) -> Sequence[Row]:
    # Rows come oldest first and sorting is stable: equal ones keep that order, as a database with an ID column would.
    return sorted(filter(is_wanted, rows), key=_ORDERS[field], reverse=is_reversed)


def _whole(request: Request, name: str, default: int, most: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise Refused(400, "Failed to parse request pagination data") from None
    if not 1 <= value <= most:
        raise Refused(400, "Failed to validate pagination request data", data={name: f"must be between 1 and {most}"})
    return value


def _mentions(data: Any, text: str) -> bool:
    fields = (data["name"], data["status"], data["description"], *data["labels"], *data["labels"].values())
    return any(text in field.lower() for field in fields)


def _credentials(request: Request, form: dict[str, str]) -> tuple[str, str]:
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return form.get("client_id", ""), form.get("client_secret", "")
    try:
        name, _, secret = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return unquote_plus(name), unquote_plus(secret)
