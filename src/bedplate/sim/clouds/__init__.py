"""Simulated clouds over HTTP: NVIDIA BMM and Oxide, with state, pages, tokens, limits, lag, faults and a journal.

In a test:

    async with BmmCloud(machines=250) as cloud:            # or OxideCloud(instances=250)
        cloud.url, cloud.token                             # what a provider's configuration needs; also, for BMM:
        cloud.org, cloud.site_id, cloud.tenant_id          #   token_url, client_id, client_secret (OIDC)
        machine = cloud.add("node-1", addresses=["10.0.0.5"])      # .id .name .state .addresses .provider_id
        cloud.stop("node-1"); cloud.start("node-1")        # by name or ID
        cloud.terminate("node-1")                          # goes the cloud's way, takes conditions.transition_s
        cloud.remove("node-1")                             # gone at once: the API says 404
        cloud.conditions.list_lag_s = 30                   # and latency_s, rate_limit, token_life_s, transition_s
        cloud.faults.add("503", operation="get-instance", times=2)
        cloud.faults.use(faults.parse(text)); cloud.faults.clear()
        await cloud.close(); await cloud.open()            # an outage: connections are refused; the port stays
        cloud.expire_tokens(); cloud.new_token()           # 401 from now on; a new one, also in `cloud.token`
        cloud.journal.count("get-instance")                # calls by operationId; .entries, .by_status, .reset()
        cloud.listeners.append(lambda change: ...)         # change.what: added, changed, removed; change.machine

BMM: `set_status(ref, "Terminating")`, `set_addresses`, `update(ref, **fields)`, `add_site`, `add_instance_type`,
`add(..., interfaces=[...], labels=..., site_id=..., tenant_id=..., nvlink_domain=...)`, `has_tenant`.
Oxide: `project`, `project_id`, `pool_id`, `set_state(ref, "failed")`, `update`, `create_floating_ip(name, ip=...,
attach_to=...)`, `floating_ip(name_or_id)`, `add_pool(name, cidr, is_default=...)`, `add_project`,
`add(..., interfaces=[{"addresses": [...]}], ncpus=..., memory_gib=..., ephemeral=False, snat=True)`.

State moves by the passed clock (`time=ManualClock()`), when the next request or call comes; the network's own delays
are real. The same seed gives the same identifiers. `/__sim` is the admin API (`admin`), `faults` says what a fault
script may hold, `schedule` lets machines come and go.
"""

from bedplate.sim.clouds.bmm import BmmCloud, BmmMachine
from bedplate.sim.clouds.oxide import OxideCloud, OxideMachine
from bedplate.sim.clouds.schedule import Churn, Schedule, Step
from bedplate.sim.clouds.server import Change, Conditions, Machine, SimulatedCloud

__all__ = [
    "BmmCloud",
    "BmmMachine",
    "Change",
    "Churn",
    "Conditions",
    "Machine",
    "OxideCloud",
    "OxideMachine",
    "Schedule",
    "SimulatedCloud",
    "Step",
]
