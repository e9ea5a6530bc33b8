"""A simulated BMM, the validating proxy in front of it, and providers that talk through both."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from tests.cloud.http.leaping import LeapingClock
from tests.contract.proxy import ValidatingProxy

from bedplate.api import core, meta, names
from bedplate.cloud.interface import Instances
from bedplate.cloud.providers.nvidia_bmm.provider import NvidiaBmm, create
from bedplate.cloud.registry import Setting
from bedplate.core import clock
from bedplate.sim.clouds.bmm import BmmCloud


class Recorder:
    """Remembers events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str]] = []

    def event(self, regarding: meta.ObjectReference, type: str, reason: str, message: str) -> None:
        self.events.append((regarding.kind, type, reason, message))


def node(
    name: str,
    provider_id: str = "",
    *,
    annotation: str = "",
    internal_ips: Sequence[str] = (),
    is_uninitialised: bool = True,
) -> core.Node:
    """A Node as its kubelet registers it."""
    annotations = {names.ANNOTATION_PROVIDED_NODE_IP: annotation} if annotation else {}
    taints = (core.Taint(key=names.TAINT_UNINITIALIZED, value="true", effect="NoSchedule"),) if is_uninitialised else ()
    addresses = tuple(core.NodeAddress(type="InternalIP", address=ip) for ip in internal_ips)
    return core.Node(
        metadata=meta.ObjectMeta(name=name, annotations=annotations),
        spec=core.NodeSpec(provider_id=provider_id, taints=taints),
        status=core.NodeStatus(addresses=addresses),
    )


class World:
    """One cloud and what talks to it. `violations` of the vendor's document fail the test in the end."""

    def __init__(self, cloud: BmmCloud, proxy: ValidatingProxy, folder: Path) -> None:
        self.cloud, self.proxy, self.folder = cloud, proxy, folder
        self.recorder = Recorder()
        self.registry = CollectorRegistry()
        self.providers: list[NvidiaBmm] = []
        self.nodes = Setting(None, {}).nodes

    def environ(self, **changes: str) -> dict[str, str]:
        values = {
            "NVIDIA_BMM_ENDPOINT": self.proxy.url,
            "NVIDIA_BMM_ORG_NAME": self.cloud.org,
            "NVIDIA_BMM_TOKEN": self.cloud.token,
            "NVIDIA_BMM_SITE_ID": self.cloud.site_id,
            "NVIDIA_BMM_TENANT_ID": self.cloud.tenant_id,
        }
        return {**values, **changes}

    def provider(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        config: Path | None = None,
        time: clock.Clock | None = None,
        ttl_s: float = 30.0,
        timeout_s: float = 30.0,
        terminated_grace_s: float = 3600.0,
        **changes: str,
    ) -> NvidiaBmm:
        """A provider configured by the environment; `changes` are further variables."""
        made = create(
            Setting(
                config,
                environ if environ is not None else self.environ(**changes),
                cache_ttl_s=ttl_s,
                timeout_s=timeout_s,
                terminated_grace_s=terminated_grace_s,
                recorder=self.recorder,
                time=time or LeapingClock(),
                registry=self.registry,
                nodes=self.nodes,
                version="test",
            )
        )
        self.providers.append(made)
        return made

    def sample(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, {"provider": "nvidia-bmm", **labels}) or 0.0


@contextlib.asynccontextmanager
async def simulated(folder: Path, *, is_clean: bool = True, **options: Any) -> AsyncIterator[World]:
    """A cloud with its proxy; ends with the check that nothing broke the vendor's document."""
    async with BmmCloud(**options) as cloud, ValidatingProxy(cloud.url, "nvidia-bmm") as proxy:
        world = World(cloud, proxy, folder)
        try:
            yield world
        finally:
            for provider in world.providers:
                await provider.close()
        if is_clean:
            proxy.assert_clean()


UNKNOWN = "00000000-0000-4000-8000-000000000000"


def instances_of(provider: NvidiaBmm) -> Instances:
    assert provider.instances is not None
    return provider.instances


def provider_id(world: World, instance: str) -> str:
    return f"nvidia-bmm://{world.cloud.org}/{world.cloud.tenant_id}/{world.cloud.site_id}/{instance}"
