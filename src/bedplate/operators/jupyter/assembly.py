"""`jupyter-kernel-operator` put together: caches, controller, endpoints.

In: options, environment, a clock. Out: `Assembly`, whose `run` is the whole program.
"""

from __future__ import annotations

from collections.abc import Mapping

from bedplate.api.resources import SERVICES
from bedplate.core import clock, errors
from bedplate.kube.config import ClientConfig, find
from bedplate.operators.jupyter import names
from bedplate.operators.jupyter.controller import KernelController, kernel_key
from bedplate.operators.jupyter.kernel import KERNELS
from bedplate.operators.jupyter.objects import Sidecar
from bedplate.operators.jupyter.options import Options
from bedplate.operators.jupyter.plan import POD_VIEWS
from bedplate.program import assembly as program
from bedplate.program import endpoints
from bedplate.program.assembly import Lease, Parts
from bedplate.runtime.events import Recorders
from bedplate.runtime.leaderelection import Timing
from bedplate.runtime.manager import Manager
from bedplate.serving.health import Checks

__all__ = ["LEASE", "Assembly"]

LEASE = "cm-jupyter-kernel-operator.brightcomputing.com"
QPS, BURST = 50.0, 100
EVENT_QPS, EVENT_BURST = 10.0, 25


class Assembly(program.Assembly[Options]):
    """One operator."""

    def __init__(
        self,
        options: Options,
        environ: Mapping[str, str],
        *,
        time: clock.Clock | None = None,
        timing: Timing | None = None,
    ) -> None:
        super().__init__(options, environ, time=time)
        self.probes: endpoints.Endpoint | None = None
        self.metrics: endpoints.Endpoint | None = None
        self._timing = timing if timing is not None else Timing()

    def connection(self) -> ClientConfig:
        config = find(self.options.operating.kubeconfig, self.environ)
        return config.with_rate(QPS, BURST).with_user_agent(names.OPERATOR)

    def lease(self) -> Lease | None:
        chosen = self.options.operating
        if not chosen.leader_elect:
            return None
        return Lease(LEASE, chosen.leader_elect_namespace, names.OPERATOR, self._timing)

    async def assemble(self, parts: Parts) -> None:
        chosen = self.options.operating
        manager, namespace = parts.manager, chosen.namespace or None
        ours = f"{names.LABEL_MANAGED_BY}={names.OPERATOR}"
        index = {"kernel": kernel_key}
        recorders = Recorders(await parts.clients.events(EVENT_QPS, EVENT_BURST), self.time)
        kernels = KernelController(
            await parts.clients.leading(),
            manager.cache(KERNELS, namespace=namespace),
            manager.cache(POD_VIEWS, namespace=namespace, label_selector=ours, indexes=index),
            manager.cache(SERVICES.partial(), namespace=namespace, label_selector=ours, indexes=index),
            Sidecar(chosen.sidecar_image, chosen.sidecar_pull_policy),
            recorders.get(names.OPERATOR),
            time=self.time,
            registry=self.registry,
        )
        for part in recorders.parts():
            manager.add(part)
        manager.add(kernels.controller)
        self._add_endpoints(manager)

    def _add_endpoints(self, manager: Manager) -> None:
        chosen = self.options.operating
        live, ready = Checks("healthz"), Checks("readyz")
        if self.elector is not None:
            live.add("leaderElection", self.elector.check)

        def check_caches() -> None:
            if not manager.has_synced:
                raise errors.Unavailable("kernels, pods and Services have not all been listed yet")

        ready.add("caches", check_caches)
        self.probes = endpoints.serve_probes(manager, live, ready, chosen.health_probe_bind_address, self.time)
        self.metrics = endpoints.serve_metrics(manager, self.registry, chosen.metrics_bind_address, self.time)
