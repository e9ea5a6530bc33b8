"""`/__sim`: what a person at the simulator may look at and change. No token is asked for.

In: requests under `/__sim` (see `HELP`). Out: JSON; the machines, counters, faults and conditions of one cloud.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from bedplate.core import errors
from bedplate.sim.clouds import faults
from bedplate.sim.clouds.exchange import Refused, Reply, Request, Route, json_reply

if TYPE_CHECKING:
    from bedplate.sim.clouds.server import Machine, SimulatedCloud

__all__ = ["HELP", "ROOT", "routes"]

ROOT = "/__sim"
HELP = """\
GET    /__sim                          this text
GET    /__sim/machines                 all machines
POST   /__sim/machines                 add one; body {"name": "…"} or none
POST   /__sim/machines/REF/ACTION      stop, start, terminate or remove; REF is a name or an ID
GET    /__sim/counters                 requests by operation and by status
GET    /__sim/requests                 the last 100 requests
DELETE /__sim/counters                 forget them
GET    /__sim/faults                   the active rules and how often each was applied
PUT    /__sim/faults                   replace them; body: a fault script, YAML or JSON
POST   /__sim/faults                   add rules; body likewise
DELETE /__sim/faults                   remove all rules
GET    /__sim/conditions               latency_s, jitter_s, list_lag_s, transition_s, rate_limit, token_life_s
PATCH  /__sim/conditions               change some; body {"latency_s": 0.2}
POST   /__sim/tokens                   issue a token
DELETE /__sim/tokens                   revoke every token issued so far (401)
"""
_ACTIONS = ("stop", "start", "terminate", "remove")


def routes(cloud: SimulatedCloud) -> list[Route]:
    """The admin API of one cloud."""
    desk = _Desk(cloud)
    table: list[tuple[str, str, Callable[[Request], Reply]]] = [
        ("GET", "", lambda _: Reply(200, HELP.encode(), "text/plain; charset=utf-8")),
        ("GET", "/machines", desk.machines),
        ("POST", "/machines", desk.add),
        ("POST", "/machines/{ref}/{action}", desk.act),
        ("GET", "/counters", desk.counters),
        ("DELETE", "/counters", desk.reset),
        ("GET", "/requests", desk.requests),
        ("GET", "/faults", desk.faults),
        ("PUT", "/faults", desk.use_faults),
        ("POST", "/faults", desk.add_faults),
        ("DELETE", "/faults", desk.clear_faults),
        ("GET", "/conditions", desk.conditions),
        ("PATCH", "/conditions", desk.change_conditions),
        ("POST", "/tokens", desk.issue),
        ("DELETE", "/tokens", desk.expire),
    ]
    return [Route(method, ROOT + path, "admin", handler, needs_token=False) for method, path, handler in table]


class _Desk:
    def __init__(self, cloud: SimulatedCloud) -> None:
        self._cloud = cloud

    def machines(self, request: Request) -> Reply:
        return json_reply(200, [_machine(each) for each in self._cloud.all()])

    def add(self, request: Request) -> Reply:
        name = _body(request).get("name", "")
        try:
            return json_reply(201, _machine(self._cloud.add(str(name))))
        except errors.BedplateError as err:
            raise Refused(400, str(err)) from err

    def act(self, request: Request) -> Reply:
        ref, action = request.params["ref"], request.params["action"]
        if action not in _ACTIONS:
            raise Refused(404, f"{action!r} is not one of {', '.join(_ACTIONS)}")
        try:
            before = self._cloud.get(ref)
            getattr(self._cloud, action)(before.id)
            after = next((each for each in self._cloud.all() if each.id == before.id), None)
        except errors.NotFound as err:
            raise Refused(404, str(err)) from err
        return json_reply(200, _machine(after) if after else {**_machine(before), "state": "gone"})

    def counters(self, request: Request) -> Reply:
        journal = self._cloud.journal
        by_status = {str(status): count for status, count in sorted(journal.by_status.items())}
        return json_reply(
            200, {"total": journal.count(), "operations": dict(journal.by_operation), "statuses": by_status}
        )

    def requests(self, request: Request) -> Reply:
        return json_reply(200, [dataclasses.asdict(entry) for entry in list(self._cloud.journal.entries)[-100:]])

    def reset(self, request: Request) -> Reply:
        self._cloud.journal.reset()
        return Reply(204)

    def faults(self, request: Request) -> Reply:
        return json_reply(200, [dataclasses.asdict(rule) for rule in self._cloud.faults.rules])

    def use_faults(self, request: Request) -> Reply:
        self._cloud.faults.use(_script(request))
        return self.faults(request)

    def add_faults(self, request: Request) -> Reply:
        for rule in _script(request).rules:
            self._cloud.faults.put(rule)
        return self.faults(request)

    def clear_faults(self, request: Request) -> Reply:
        self._cloud.faults.clear()
        return Reply(204)

    def conditions(self, request: Request) -> Reply:
        return json_reply(200, dataclasses.asdict(self._cloud.conditions))

    def change_conditions(self, request: Request) -> Reply:
        known = dataclasses.asdict(self._cloud.conditions)
        try:
            changed = msgspec.convert({**known, **_body(request)}, type(self._cloud.conditions))
        except msgspec.ValidationError as err:
            raise Refused(400, str(err)) from err
        if unknown := set(_body(request)) - set(known):
            raise Refused(400, f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(known)}")
        self._cloud.conditions = changed
        return self.conditions(request)

    def issue(self, request: Request) -> Reply:
        return json_reply(201, {"token": self._cloud.new_token()})

    def expire(self, request: Request) -> Reply:
        self._cloud.expire_tokens()
        return Reply(204)


def _machine(machine: Machine) -> dict[str, Any]:
    return {
        "id": machine.id,
        "name": machine.name,
        "state": machine.state,
        "addresses": list(machine.addresses),
        "providerID": machine.provider_id,
    }


def _body(request: Request) -> dict[str, Any]:
    if not request.body:
        return {}
    try:
        tree = msgspec.json.decode(request.body)
    except msgspec.DecodeError as err:
        raise Refused(400, f"the body is not JSON: {err}") from err
    if not isinstance(tree, dict):
        raise Refused(400, "the body must be a JSON object")
    return tree


def _script(request: Request) -> faults.Script:
    try:
        return faults.parse(request.body)
    except errors.Invalid as err:
        raise Refused(400, str(err)) from err
