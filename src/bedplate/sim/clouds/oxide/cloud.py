"""`OxideCloud`: a simulated Oxide silo with projects, instances, their interfaces and external addresses.

In: calls of tests and of the admin API, and HTTP requests (`api`). Out: the Region API at `url`. Machines go through
the run states of the document; each step takes `conditions.transition_s`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from bedplate.core import errors
from bedplate.sim.clouds.exchange import NO_CODE, Refused, Reply, Request, Route, json_reply
from bedplate.sim.clouds.index import Index, Row
from bedplate.sim.clouds.oxide import payloads
from bedplate.sim.clouds.oxide.api import OxideApi
from bedplate.sim.clouds.oxide.floating import FloatingIps, Pool, Pools
from bedplate.sim.clouds.server import SimulatedCloud, Surroundings
from bedplate.sim.clouds.tokens import Grant, Problem

__all__ = ["COLLABORATOR", "VIEWER", "OxideCloud", "OxideMachine"]

COLLABORATOR, VIEWER = "collaborator", "viewer"
GIB = 1 << 30
_CODES = {
    400: "InvalidRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "ObjectNotFound",
    409: "Conflict",
    500: "Internal",
    503: "ServiceNotAvailable",
    507: "InsufficientCapacity",
}


@dataclass(frozen=True, slots=True)
class OxideMachine:
    """An instance, as it was when you looked."""

    id: str
    name: str
    state: str
    project_id: str
    addresses: tuple[str, ...]
    provider_id: str


class OxideCloud(SimulatedCloud):
    """An Oxide Region API for one silo."""

    kind = "oxide"
    token_prefix = "oxide-token-"
    roles = frozenset({COLLABORATOR, VIEWER})

    def __init__(
        self,
        *,
        instances: int = 0,
        prefix: str = "oxide-",
        project: str = "bedplate",
        has_v6_pool: bool = False,
        **surroundings: Unpack[Surroundings],
    ) -> None:
        super().__init__(**surroundings)
        self.prefix, self.project = prefix, project
        self.silo_id, self.user_id, self.vpc_id, self.subnet_id = (self.new_id() for _ in range(4))
        self.instances, self.interfaces = Index(self.time), Index(self.time)
        self.floating_ips, self.projects, self.pool_views = Index(self.time), Index(self.time), Index(self.time)
        self.pools = Pools()
        self.floating = FloatingIps(self)
        self._interfaces_of: dict[str, list[str]] = {}
        self._ephemeral: dict[str, list[dict[str, Any]]] = {}
        self._by_name: dict[tuple[str, str], str] = {}
        self._added = 0
        self.project_id = self.add_project(project)
        self.pool_id = self.add_pool("default", "198.18.0.0/15", is_default=True)
        if has_v6_pool:
            self.add_pool("default-v6", "2001:db8:1::/64", is_default=True)
        self.add_machines(instances)

    def routes(self) -> list[Route]:
        return OxideApi(self).routes()

    # State

    def add_project(self, name: str) -> str:
        """A further project; returns its ID."""
        identifier = self.new_id()
        self.projects.put(identifier, payloads.project(identifier, name, self.now()))
        return identifier

    def add_pool(self, name: str, network: str, *, is_default: bool = False) -> str:
        """A further IP pool; returns its ID. Its first address is never given out by itself."""
        pool = Pool(self.new_id(), name, ipaddress.ip_network(network), is_default)
        self.pools.add(pool)
        self.pool_views.put(pool.id, payloads.pool(pool.id, name, pool.version, is_default, self.now()))
        return pool.id

    def add_machines(self, count: int) -> list[OxideMachine]:
        """So many more, named by the prefix and a number."""
        return [self.add() for _ in range(count)]

    def add(
        self,
        name: str = "",
        *,
        addresses: Sequence[str] | None = None,
        interfaces: Sequence[Mapping[str, Any]] | None = None,
        state: str = "running",
        ncpus: int = 4,
        memory_gib: int = 16,
        project_id: str = "",
        hostname: str = "",
        ephemeral: bool | Sequence[str] = True,
        snat: bool = False,
        identifier: str = "",
        **fields: Any,
    ) -> OxideMachine:
        """A new instance with one interface holding `addresses` (one of a family), or with `interfaces` (fields as in
        the API, or `addresses`); `ephemeral`: whether it has an ephemeral address, or which."""
        self._added += 1
        identifier, now = identifier or self.new_id(), self.now()
        name = name or f"{self.prefix}{self._added:03d}"
        project_id = project_id or self.project_id
        if self.instance_named(project_id, name) is not None:
            raise errors.AlreadyExists(f"instance {name!r} already exists in the simulated Oxide project")
        data = payloads.instance(
            identifier,
            name,
            project_id,
            now,
            ncpus=ncpus,
            memory=memory_gib * GIB,
            state=state,
            hostname=hostname or name,
        )
        self.instances.put(identifier, {**data, **fields})
        self._by_name[project_id, name] = identifier
        if interfaces is None:
            own = [self._private(self._added)] if addresses is None else addresses
            interfaces = [{"addresses": own}] if own else []
        self._interfaces_of[identifier] = []
        for number, each in enumerate(interfaces):
            self._add_interface(identifier, number, each, now)
        self._ephemeral[identifier] = self._take_ephemeral(ephemeral, snat)
        machine = self.get(identifier)
        self.tell("added", machine)
        return machine

    def get(self, ref: str) -> OxideMachine:
        """The instance of that ID or name."""
        self.agenda.run()
        return self._machine(self._row(ref))

    def all(self) -> list[OxideMachine]:
        """Every instance, oldest first."""
        self.agenda.run()
        return [self._machine(row) for row in self.instances]

    def update(self, ref: str, **fields: Any) -> OxideMachine:
        """Change fields of the Instance object itself (`auto_restart_enabled=False`)."""
        row = self._row(ref)
        self.instances.put(row.key, {**row.data, "time_modified": self.now(), **fields})
        return self.get(row.key)

    def set_state(self, ref: str, state: str) -> OxideMachine:
        """Put an instance in any run state of the document."""
        if state not in payloads.STATES:
            raise errors.Invalid(f"{state!r} is not a run state of an instance", hint=", ".join(payloads.STATES))
        machine = self.update(ref, run_state=state, time_run_state_updated=self.now())
        self.tell("changed", machine)
        return machine

    def stop(self, ref: str) -> OxideMachine:
        """stopping, then stopped."""
        return self._move(ref, "stopping", "stopped")

    def start(self, ref: str) -> OxideMachine:
        """starting, then running."""
        return self._move(ref, "starting", "running")

    def reboot(self, ref: str) -> OxideMachine:
        """rebooting, then running."""
        return self._move(ref, "rebooting", "running")

    def terminate(self, ref: str) -> None:
        """stopping, then gone."""
        identifier = self._row(ref).key
        if self.conditions.transition_s > 0:
            self.set_state(identifier, "stopping")
        self.agenda.after(self.conditions.transition_s, lambda: self.remove(identifier))

    def remove(self, ref: str) -> None:
        """Gone at once: the API answers 404, its floating IPs are detached."""
        row = self.instances.get(ref) or self.instance_named(self.project_id, ref)
        if row is None:
            return
        machine = self._machine(row)
        self.instances.drop(row.key)
        del self._by_name[row.data["project_id"], row.data["name"]]
        for identifier in self._interfaces_of.pop(row.key):
            self.interfaces.drop(identifier)
        for each in self._ephemeral.pop(row.key):
            self.pools.release(each["ip"])
        self.floating.detach_all_of(row.key)
        self.tell("removed", machine)

    def create_floating_ip(self, name: str, *, description: str = "", ip: str = "", attach_to: str = "") -> str:
        """A foreign floating IP; returns its ID."""
        allocator = {"type": "explicit", "ip": ip} if ip else {"type": "auto"}
        row = self.floating.create(self.project_id, name, description, allocator)
        if attach_to:
            self.floating.attach(row, self._row(attach_to))
        return row.key

    def floating_ip(self, ref: str) -> Mapping[str, Any] | None:
        """The floating IP of that ID or name, as the API shows it; None when there is none."""
        self.agenda.run()
        row = self.floating_ips.get(ref) or self.floating_ip_named(self.project_id, ref)
        return row.data if row else None

    # What the API's handlers ask

    def instance_named(self, project_id: str, name: str) -> Row | None:
        return self.instances.get(self._by_name.get((project_id, name), ""))

    def floating_ip_named(self, project_id: str, name: str) -> Row | None:
        rows = (row for row in self.floating_ips if row.data["name"] == name)
        return next((row for row in rows if row.data["project_id"] == project_id), None)

    def interfaces_of(self, instance_id: str, lag_s: float = 0.0) -> list[Row]:
        return self.interfaces.pick(self._interfaces_of.get(instance_id, ()), lag_s)

    def private_ips_of(self, instance_id: str) -> list[str]:
        addresses: list[str] = []
        for row in self.interfaces_of(instance_id):
            stack = row.data["ip_stack"]
            parts = stack["value"].values() if stack["type"] == "dual_stack" else [stack["value"]]
            addresses += [part["ip"] for part in parts]
        return addresses

    def ephemeral_ips_of(self, instance_id: str) -> list[dict[str, Any]]:
        return [each for each in self._ephemeral.get(instance_id, ()) if each["kind"] == "ephemeral"]

    def external_ips_of(self, instance_id: str) -> list[dict[str, Any]]:
        """All kinds, as ExternalIp."""
        floating = [{"kind": "floating", **row.data} for row in self.floating.of(instance_id)]
        return [*self._ephemeral.get(instance_id, ()), *floating]

    # What the API looks like when it says no

    def refuse(self, refused: Refused, request: Request) -> Reply:
        body = {"request_id": request.request_id, "message": refused.message}
        if refused.code == "method":
            return json_reply(405, {**body, "message": "Method Not Allowed"}, {"x-request-id": request.request_id})
        if refused.code == "route":
            body["message"] = "Not Found"
        elif refused.code == "unnamed":
            body |= {"message": "Not Found", "error_code": "Not Found"}
        elif (code := refused.code or _CODES.get(refused.status, NO_CODE)) != NO_CODE:
            body["error_code"] = code
        return json_reply(refused.status, body, {"x-request-id": request.request_id})

    def unauthorized(self, problem: Problem) -> Refused:
        return Refused(401, "credentials missing or invalid", code="Unauthorized")

    def admit(self, request: Request, grant: Grant) -> None:
        OxideApi.check_version(request)
        if request.operation in ("current_user_view", "ping"):
            return
        if VIEWER not in grant.roles:
            # What one may not read does not exist: the API does not tell the two apart.
            raise Refused(404, f'not found: project with name "{self.project}"', code="ObjectNotFound")
        if request.method != "GET" and COLLABORATOR not in grant.roles:
            raise Refused(403, "Forbidden", code="Forbidden")

    def _row(self, ref: str) -> Row:
        row = self.instances.get(ref) or self.instance_named(self.project_id, ref)
        if row is None:
            raise errors.NotFound(f"no instance {ref!r} in the simulated Oxide project")
        return row

    def _machine(self, row: Row) -> OxideMachine:
        data = row.data
        private = tuple(self.private_ips_of(row.key))
        return OxideMachine(row.key, data["name"], data["run_state"], data["project_id"], private, f"oxide://{row.key}")

    def _move(self, ref: str, passing: str, final: str) -> OxideMachine:
        identifier = self._row(ref).key
        if self.conditions.transition_s > 0:
            self.set_state(identifier, passing)
        self.agenda.after(self.conditions.transition_s, lambda: self._arrive(identifier, passing, final))
        return self.get(identifier)

    def _arrive(self, identifier: str, passing: str, final: str) -> None:
        row = self.instances.get(identifier)
        if row is not None and (self.conditions.transition_s <= 0 or row.data["run_state"] == passing):
            self.set_state(identifier, final)

    def _add_interface(self, instance_id: str, number: int, given: Mapping[str, Any], now: str) -> None:
        identifier = self.new_id()
        fields = {key: value for key, value in given.items() if key != "addresses"}
        stack = fields.get("ip_stack") or payloads.ip_stack(given["addresses"])
        network = {"vpc_id": self.vpc_id, "subnet_id": self.subnet_id}
        data = payloads.interface(identifier, f"net{number}", instance_id, network, stack, now)
        self.interfaces.put(identifier, {**data, "primary": number == 0, **fields})
        self._interfaces_of[instance_id].append(identifier)

    def _take_ephemeral(self, ephemeral: bool | Sequence[str], snat: bool) -> list[dict[str, Any]]:
        if isinstance(ephemeral, bool):
            taken = [self.pools.default("v4")] if ephemeral else []
            claims = [(pool.take(), pool) for pool in taken]
        else:
            claims = [self.pools.claim(address) for address in ephemeral]
        rows: list[dict[str, Any]] = [{"kind": "ephemeral", "ip": ip, "ip_pool_id": pool.id} for ip, pool in claims]
        if snat:
            pool = self.pools.default("v4")
            rows.append({"kind": "snat", "ip": pool.take(), "ip_pool_id": pool.id, "first_port": 0, "last_port": 16383})
        return rows

    @staticmethod
    def _private(number: int) -> str:
        return str(ipaddress.IPv4Address("172.30.0.5") + number - 1)
