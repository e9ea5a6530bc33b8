"""`BmmCloud`: a simulated NVIDIA Bare Metal Manager with one organisation, its tenant, sites and instances.

In: calls of tests and of the admin API (add, stop, start, terminate, remove), and HTTP requests (`api`). Out: the REST
API at `url`. A machine that is stopped has the status Error (power is off: BMM has no word for it); one that is
terminated is Terminating for `conditions.transition_s`, then gone.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from bedplate.core import errors
from bedplate.sim.clouds.bmm import payloads
from bedplate.sim.clouds.bmm.api import BmmApi
from bedplate.sim.clouds.exchange import Refused, Reply, Request, Route, json_reply
from bedplate.sim.clouds.index import Index, Row
from bedplate.sim.clouds.server import SimulatedCloud, Surroundings
from bedplate.sim.clouds.tokens import Grant, Problem

__all__ = ["TENANT_ADMIN", "BmmCloud", "BmmMachine"]

TENANT_ADMIN = "FORGE_TENANT_ADMIN"
ROUTE_NOT_FOUND = "The requested path could not be found"
UNNAMED_NOT_FOUND = "Could not find resource with specified ID"
_PLACES = (
    ("Santa Clara", "California", "USA"),
    ("Portland", "Oregon", "USA"),
    ("Helsinki", "Uusimaa", "Finland"),
    ("Frankfurt", "Hesse", "Germany"),
)
_TOKEN_PROBLEMS = {
    Problem.MISSING: "Request is missing authorization header",
    Problem.MALFORMED: "Invalid Authorization header format",
    Problem.UNKNOWN: "Invalid authorization token in request",
    Problem.EXPIRED: "Authorization token in request has expired",
}


@dataclass(frozen=True, slots=True)
class BmmMachine:
    """An instance, as it was when you looked."""

    id: str
    name: str
    status: str
    site_id: str
    tenant_id: str
    machine_id: str
    addresses: tuple[str, ...]
    provider_id: str

    @property
    def state(self) -> str:
        """The same word that `OxideMachine` has: what the cloud calls it."""
        return self.status


class BmmCloud(SimulatedCloud):
    """A BMM site controller's REST API for one organisation."""

    kind = "nvidia-bmm"
    roles = frozenset({TENANT_ADMIN})

    def __init__(
        self,
        *,
        machines: int = 0,
        prefix: str = "bmm-",
        sites: int = 1,
        org: str = "acme",
        api_name: str = "carbide",
        has_tenant: bool = True,
        **surroundings: Unpack[Surroundings],
    ) -> None:
        self.org, self.api_name, self.has_tenant = org, api_name, has_tenant
        super().__init__(**surroundings)
        self.prefix = prefix
        self.tenant_id, self.provider_id = self.new_id(), self.new_id()
        self.vpc_id, self.operating_system_id, self.subnet_id = self.new_id(), self.new_id(), self.new_id()
        self.client_id, self.client_secret = "bedplate", self.new_id()
        self.instances = Index(self.time)
        self.machines = Index(self.time)
        self.sites = Index(self.time)
        self.instance_types = Index(self.time)
        self._by_name: dict[str, list[str]] = {}
        self._added = 0
        for number in range(sites):
            self.add_site(f"site-{number + 1}")
        self.site_id = next(iter(self.sites)).key
        self.add_machines(machines)

    @property
    def token_url(self) -> str:
        """Where client credentials are exchanged for a token."""
        return f"{self.url}/oauth2/token"

    def routes(self) -> list[Route]:
        return BmmApi(self).routes()

    # State

    def add_site(self, name: str) -> str:
        """A further site with one instance type; returns its ID."""
        identifier, now = self.new_id(), self.now()
        place = _PLACES[len(self.sites) % len(_PLACES)]
        self.sites.put(identifier, payloads.site(identifier, name, self.org, self.provider_id, place, now))
        self.add_instance_type(f"{name}.h100x8", site_id=identifier)
        return identifier

    def add_instance_type(self, name: str, *, site_id: str = "") -> str:
        """An instance type at a site; returns its ID."""
        identifier = self.new_id()
        data = payloads.instance_type(identifier, name, self.provider_id, site_id or self.site_id, self.now())
        self.instance_types.put(identifier, data)
        return identifier

    def add_machines(self, count: int) -> list[BmmMachine]:
        """So many more, named by the prefix and a number."""
        return [self.add() for _ in range(count)]

    def add(
        self,
        name: str = "",
        *,
        addresses: Sequence[str] | None = None,
        interfaces: Sequence[Mapping[str, Any]] | None = None,
        status: str = "Ready",
        site_id: str = "",
        tenant_id: str = "",
        instance_type_id: str = "",
        labels: Mapping[str, str] | None = None,
        nvlink_domain: str = "",
        identifier: str = "",
    ) -> BmmMachine:
        """A new instance. `interfaces` (fields as in the API) replace the one physical interface with `addresses`."""
        self._added += 1
        identifier, now = identifier or self.new_id(), self.now()
        name = name or f"{self.prefix}{self._added:03d}"
        site_id = site_id or self.site_id
        given = (
            [{"ipAddresses": [self._address(self._added)] if addresses is None else list(addresses)}]
            if interfaces is None
            else interfaces
        )
        built = [payloads.interface(self.new_id(), identifier, self.subnet_id, (), now, **dict(each)) for each in given]
        owner = {
            "tenantId": tenant_id or self.tenant_id,
            "infrastructureProviderId": self.provider_id,
            "siteId": site_id,
            "instanceTypeId": instance_type_id or self._type_of(site_id),
            "vpcId": self.vpc_id,
            "operatingSystemId": self.operating_system_id,
        }
        nvlink = [self._nvlink(identifier, nvlink_domain, number, now) for number in range(8)] if nvlink_domain else []
        data = payloads.instance(
            identifier,
            name,
            owner=owner,
            machine_id=f"fm100h{identifier.replace('-', '')}",
            interfaces=built,
            status=status,
            labels=labels or {},
            nvlink=nvlink,
            now=now,
        )
        self.instances.put(identifier, data)
        self.machines.put(data["machineId"], payloads.machine(data["machineId"], data, now))
        self._by_name.setdefault(name, []).append(identifier)
        machine = self.get(identifier)
        self.tell("added", machine)
        return machine

    def get(self, ref: str) -> BmmMachine:
        """The instance of that ID or name."""
        self.agenda.run()
        return self._machine(self._row(ref))

    def all(self) -> list[BmmMachine]:
        """Every instance, oldest first."""
        self.agenda.run()
        return [self._machine(row) for row in self.instances]

    def set_status(self, ref: str, status: str) -> BmmMachine:
        """Put an instance in any status of `objects.STATUSES`."""
        if status not in payloads.STATUSES:
            raise errors.Invalid(f"{status!r} is not a status of an instance", hint=", ".join(payloads.STATUSES))
        machine = self.update(ref, **payloads.with_status(self._row(ref).data, status, self.now()))
        self.tell("changed", machine)
        return machine

    def update(self, ref: str, **fields: Any) -> BmmMachine:
        """Change fields of the Instance object itself (`labels=…`, `siteId=…`)."""
        row = self._row(ref)
        self.instances.put(row.key, {**row.data, "updated": self.now(), **fields})
        return self.get(row.key)

    def set_addresses(self, ref: str, addresses: Sequence[str]) -> BmmMachine:
        """Give an instance one physical interface with these addresses."""
        row, now = self._row(ref), self.now()
        return self.update(ref, interfaces=[payloads.interface(self.new_id(), row.key, self.subnet_id, addresses, now)])

    def stop(self, ref: str) -> BmmMachine:
        """Power off: status Error."""
        return self.set_status(ref, "Error")

    def start(self, ref: str) -> BmmMachine:
        """Back to Ready, by way of Rebooting when transitions take time."""
        identifier = self._row(ref).key
        if self.conditions.transition_s > 0:
            self.set_status(identifier, "Rebooting")
        self.agenda.after(self.conditions.transition_s, lambda: self._if_there(identifier, "Ready"))
        return self.get(identifier)

    def terminate(self, ref: str) -> None:
        """Terminating, then gone."""
        identifier = self._row(ref).key
        if self.conditions.transition_s > 0:
            self.set_status(identifier, "Terminating")
        self.agenda.after(self.conditions.transition_s, lambda: self.remove(identifier))

    def remove(self, ref: str) -> None:
        """Gone at once; the API answers 404 from now on."""
        row = self.instances.get(ref) or self._named(ref)
        if row is not None:
            self.instances.drop(row.key)
            self.machines.drop(row.data["machineId"])
            self._by_name[row.data["name"]].remove(row.key)
            self.tell("removed", self._machine(row))

    # What the API looks like when it says no

    def refuse(self, refused: Refused, request: Request) -> Reply:
        message = refused.message
        if refused.code in ("route", "method"):
            message = ROUTE_NOT_FOUND
        elif refused.code == "unnamed":
            message = UNNAMED_NOT_FOUND
        return json_reply(refused.status, {"source": "carbide", "message": message, "data": refused.data})

    def unauthorized(self, problem: Problem) -> Refused:
        return Refused(401, _TOKEN_PROBLEMS[problem])

    def admit(self, request: Request, grant: Grant) -> None:
        if request.params.get("org") != self.org:
            raise Refused(403, f"Failed to validate membership for org: {request.params.get('org')}")
        if request.operation in ("get-metadata", "get-user"):
            return
        if TENANT_ADMIN not in grant.roles:
            raise Refused(403, "User does not have Tenant Admin role with org")
        if not self.has_tenant:
            raise Refused(403, "Org does not have a Tenant associated")

    def _row(self, ref: str) -> Row:
        row = self.instances.get(ref) or self._named(ref)
        if row is None:
            raise errors.NotFound(f"no instance {ref!r} in the simulated BMM")
        return row

    def _named(self, name: str) -> Row | None:
        key = self._by_name.get(name)
        return self.instances.get(key[-1]) if key else None

    def _machine(self, row: Row) -> BmmMachine:
        data = row.data
        addresses = [address for each in data["interfaces"] for address in each["ipAddresses"]]
        return BmmMachine(
            id=row.key,
            name=data["name"],
            status=data["status"],
            site_id=data["siteId"],
            tenant_id=data["tenantId"],
            machine_id=data["machineId"],
            addresses=tuple(addresses),
            provider_id=f"nvidia-bmm://{self.org}/{data['tenantId']}/{data['siteId']}/{row.key}",
        )

    def _if_there(self, identifier: str, status: str) -> None:
        if identifier in self.instances:
            self.set_status(identifier, status)

    def _type_of(self, site_id: str) -> str:
        return next((row.key for row in self.instance_types if row.data["siteId"] == site_id), "")

    def _nvlink(self, instance_id: str, domain: str, number: int, now: str) -> dict[str, Any]:
        return {
            "id": self.new_id(),
            "instanceId": instance_id,
            "nvLinkLogicalPartitionId": self.vpc_id,
            "nvLinkDomainId": domain,
            "deviceInstance": number,
            "gpuGuid": f"0x{self.rng.getrandbits(64):016x}",
            "status": "Ready",
            "created": now,
            "updated": now,
        }

    @staticmethod
    def _address(number: int) -> str:
        return str(ipaddress.IPv4Address("10.100.0.10") + number - 1)
