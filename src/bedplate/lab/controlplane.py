"""A real etcd and kube-apiserver as plain processes, without root.

In: a version and a folder. Out: a control plane on free loopback ports with TLS, RBAC and an administrator's
kubeconfig.

    async with ControlPlane(version="1.35", directory=tmp_path) as cp:
        cp.kubeconfig                      # Path; user kubernetes-admin in system:masters
        cp.url                             # https://127.0.0.1:PORT
        cp.ca, cp.pki                      # CA certificate, folder with every key pair (admin.crt, admin.key, ...)
        cp.etcd_url                        # https, client certificate etcd-client.crt/.key in cp.pki
        await cp.kill("kube-apiserver")    # kill -9, as a fault
        await cp.restart("kube-apiserver") # start again on the same port, wait until ready
        cp.freeze("etcd"); cp.thaw("etcd") # SIGSTOP, SIGCONT
        cp.kubeconfig_for("alice", groups=["devs"])  # a user with no rights but those RBAC gives

`start()` and `stop()` do the same outside a `with` (a session fixture may use them in different event loops).
`components` may add "kube-controller-manager" and "kube-scheduler"; `extra_args={"kube-apiserver": ["--v=4"]}` adds
arguments, the last word being yours. `directory` keeps certificates, data and logs (`logs/<component>.log`); a second
start on it finds the data. Without one a temporary folder is used and removed. `is_durable=False` (the default) lets
etcd skip fsync, which is right for tests and wrong for measurements.

The processes die with ours, even after kill -9 (see `processes`): enter the control plane in the main thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import socket
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from bedplate.core import errors
from bedplate.lab import binaries, credentials, versions
from bedplate.lab import components as plans
from bedplate.lab.processes import Process, tail

__all__ = ["ALL_COMPONENTS", "ControlPlane", "free_ports"]

ALL_COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_POLL_S = 0.1


def free_ports(count: int) -> list[int]:
    """Free loopback ports. All are held until all are found, so that they differ."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class ControlPlane:
    """Etcd, kube-apiserver and the chosen components as processes; use it with `with`, which starts and stops them."""

    def __init__(
        self,
        version: str = versions.DEFAULT,
        directory: Path | None = None,
        components: Sequence[str] = ("etcd", "kube-apiserver"),
        *,
        extra_args: Mapping[str, Iterable[str]] | None = None,
        is_durable: bool = False,
        timeout_s: float = 120.0,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        unknown = sorted(set(components) - set(ALL_COMPONENTS))
        if unknown or not {"etcd", "kube-apiserver"} <= set(components):
            raise errors.Invalid(
                f"cannot run a control plane of {', '.join(components) or 'nothing'}",
                hint=f"etcd and kube-apiserver are needed; known: {', '.join(ALL_COMPONENTS)}",
            )
        self.version = version
        self._directory = directory
        self._temporary: Path | None = None
        self._components = [name for name in ALL_COMPONENTS if name in components]
        self._extra_args = {name: tuple(args) for name, args in (extra_args or {}).items()}
        self._is_durable = is_durable
        self._timeout_s = timeout_s
        self._progress = progress
        self._site: plans.Site | None = None
        self._processes: dict[str, Process] = {}

    async def __aenter__(self) -> ControlPlane:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def directory(self) -> Path:
        """Where everything of this control plane lies."""
        return self.site.data

    @property
    def site(self) -> plans.Site:
        if self._site is None:
            raise errors.Terminal("the control plane has not been started")
        return self._site

    @property
    def url(self) -> str:
        return self.site.url

    @property
    def etcd_url(self) -> str:
        return self.site.etcd_url

    @property
    def pki(self) -> Path:
        return self.site.pki

    @property
    def ca(self) -> Path:
        return self.site.pki / "ca.crt"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.site.config / "admin.kubeconfig"

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig of another user, known to the server by its certificate."""
        authority = credentials.Authority.open(self.pki, "ca")
        file_name = f"user-{user}".replace("/", "_").replace(":", "_")
        pair = authority.issue(file_name, user, groups=groups)
        target = self.site.config / f"{file_name}.kubeconfig"
        return credentials.write_kubeconfig(target, self.url, self.ca, pair, user=user)

    def pid(self, component: str) -> int | None:
        """The process id of a component, None when it does not run."""
        return self._process(component).pid

    def log(self, component: str) -> Path:
        return self._process(component).log

    async def start(self) -> None:
        """Start everything and return when the API server is ready. A failed start leaves no process."""
        try:
            programs = await asyncio.to_thread(binaries.ensure, self._components, self.version, progress=self._progress)
            self._prepare(programs)
            for name in self._components:
                self._processes[name].start()
            await self._until_ready()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop everything, the API server before its etcd. Safe to call twice."""
        for name in reversed(self._components):
            if name in self._processes:
                await self._processes[name].stop()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    async def kill(self, component: str) -> None:
        """kill -9, and wait until the process is gone."""
        await self._process(component).kill()

    async def restart(self, component: str) -> None:
        """Stop the component if it runs, start it on its old port, return when the API server is ready again."""
        process = self._process(component)
        await process.stop()
        process.start()
        await self._until_ready()

    def freeze(self, component: str) -> None:
        """SIGSTOP: the process keeps its sockets and, from the return of this call on, answers nothing."""
        self._process(component).freeze()

    def thaw(self, component: str) -> None:
        """End a freeze."""
        self._process(component).signal(signal.SIGCONT)

    def _process(self, component: str) -> Process:
        if component not in self._processes:
            raise errors.NotFound(f"no component {component!r} in this control plane")
        return self._processes[component]

    def _prepare(self, programs: Mapping[str, Path]) -> None:
        if self._directory is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="bedplate-controlplane-"))
        root = (self._directory or self._temporary or Path()).absolute()
        (root / "logs").mkdir(parents=True, exist_ok=True)
        ports = free_ports(5)
        self._site = plans.Site(
            pki=root / "pki",
            config=root,
            data=root,
            port=ports[0],
            etcd_port=ports[1],
            etcd_peer_port=ports[2],
            controller_manager_port=ports[3],
            scheduler_port=ports[4],
            extra_args=self._extra_args,
        )
        plans.issue_all(self._site)
        arguments = {
            "etcd": plans.etcd(self._site, is_durable=self._is_durable),
            "kube-apiserver": plans.apiserver(self._site),
            "kube-controller-manager": plans.controller_manager(self._site),
            "kube-scheduler": plans.scheduler(self._site),
        }
        for name in self._components:
            command = [str(programs[name]), *arguments[name]]
            self._processes[name] = Process(name, command, root / "logs" / f"{name}.log")

    async def _until_ready(self) -> None:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.pki / "admin.crt", self.pki / "admin.key")
        answer = "no answer yet"
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    for process in self._processes.values():
                        failure = process.failure()
                        if failure is not None:
                            raise failure
                    answer = await asyncio.to_thread(_ask, f"{self.url}/readyz", context)
                    if answer == "ok":
                        return
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            log = self.log("kube-apiserver")
            raise errors.Unavailable(
                f"kube-apiserver was not ready after {self._timeout_s:.0f} s ({answer}); "
                f"last lines of {log}:\n{tail(log)}"
            ) from None


def _ask(url: str, context: ssl.SSLContext) -> str:
    try:
        with urllib.request.urlopen(url, timeout=5, context=context) as response:
            return str(response.read().decode())
    except urllib.error.HTTPError as err:
        return f"{err.code} {err.read().decode(errors='replace').strip()[-200:]}"
    except OSError as err:
        return str(err)
