"""The provider `cloudlycke`, put together.

In: what the manager gives a provider (`registry.Setting`). Out: a `Provider` with the present interface or, with
`interface: v1`, the old one; with load balancers unless they are switched off. `interface` and `loadBalancer` are read
once, at the start; the machines are read again whenever the file changes. There is nothing to connect to.
"""

from __future__ import annotations

from collections.abc import Sequence

from bedplate.api import core
from bedplate.cloud import doctor
from bedplate.cloud.doctor import Finding, fine, unknown
from bedplate.cloud.interface import Instances, LegacyInstances, LoadBalancers, Routes
from bedplate.cloud.providers.cloudlycke import config
from bedplate.cloud.providers.cloudlycke.balancers import Balancers
from bedplate.cloud.providers.cloudlycke.instances import LegacyMachines, Machines
from bedplate.cloud.providers.cloudlycke.inventory import Inventory
from bedplate.cloud.registry import Setting
from bedplate.core import errors

__all__ = ["Cloudlycke", "create"]


class Cloudlycke:
    """One demonstration cloud."""

    name = config.SCHEME
    schemes: tuple[str, ...] = (config.SCHEME,)
    has_cluster_id = True
    routes: Routes | None = None

    def __init__(self, setting: Setting, first: config.Config) -> None:
        self._inventory = Inventory(setting.config, first)
        self._was_ready = False
        is_old = first.interface == "v1"
        self.instances: Instances | None = None if is_old else Machines(self._inventory)
        self.legacy: LegacyInstances | None = LegacyMachines(self._inventory) if is_old else None
        self.load_balancers: LoadBalancers | None = None
        if first.load_balancer.enabled:
            self.load_balancers = Balancers(setting, self._inventory, first.load_balancer.network)

    async def start(self) -> None:
        """Nothing to open: the cloud is a file."""

    async def close(self) -> None:
        """Nothing to close."""

    def is_foreign(self, provider_id: str) -> str:
        return ""

    async def diagnose(self, nodes: Sequence[core.Node]) -> list[Finding]:
        """For the doctor: whether the inventory can be read and holds these nodes."""
        try:
            await self._inventory.refresh()
        except errors.BedplateError as err:
            return [unknown("cloud-api", self.name, err, "correct the file of --cloud-config")]
        findings = [fine("cloud-api", self.name, "the inventory can be read")]
        if self.instances is None:
            return findings
        return findings + await doctor.examine_nodes(self.instances, nodes, "in the inventory")

    async def check_ready(self) -> None:
        # Once is enough: a later outage does not make the manager unready.
        if not self._was_ready:
            await self._inventory.refresh()
            self._was_ready = True


def create(setting: Setting) -> Cloudlycke:
    """The provider; raises `Invalid` with every problem of the configuration file."""
    return Cloudlycke(setting, config.read(setting.config))
