"""The process proxy that starts a kernel as a CMJupyterKernel.

In: a kernelspec made of a template: `kernel.json` with the template's parameters, `templates/cmjk.yaml.j2`; who starts
it, from the gateway's environment. Out: the resource, created and in the end deleted; pings to the sidecar meanwhile.
The connection parameters come from the sidecar, at the gateway's response address.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import time
from typing import Any

import jinja2
import jinja2.sandbox
import yaml
from enterprise_gateway.services.processproxies.container import ContainerProcessProxy
from enterprise_gateway.services.processproxies.processproxy import RemoteProcessProxy
from kubernetes import client, config

from cm_jupyter_kernel_creator.eg_processproxies import sidecar

GROUP, VERSION, PLURAL = "apps.brightcomputing.com", "v1", "cmjupyterkernels"
COMM_PORT = 5006
LIVING = {"pending", "running"}


class KubernetesCMJupyterKernelOperator(ContainerProcessProxy):
    """Lifecycle of one kernel."""

    def __init__(self, kernel_manager: Any, proxy_config: dict[str, Any]) -> None:
        super().__init__(kernel_manager, proxy_config)
        self.namespace = ""
        self.container_name = ""
        self._pinger: sidecar.Pinger | None = None
        self._api: Any = None

    # Starting

    async def launch_process(self, kernel_cmd: list[str], **kwargs: Any) -> KubernetesCMJupyterKernelOperator:
        """Create the resource and wait until the sidecar says how to reach the kernel."""
        # Of the base classes only the one that checks who may start kernels, and registers this one for its answer.
        await RemoteProcessProxy.launch_process(self, kernel_cmd, **kwargs)
        document = self._document(kernel_cmd, kwargs["env"])
        self.namespace = document["metadata"]["namespace"]
        self.container_name = document["metadata"]["name"]
        try:
            await self._create(document)
        except client.ApiException as err:
            self.log_and_raise(http_status_code=500, reason=f"CMJupyterKernel could not be created: {_reason(err)}")
        self.log.info(f"CMJupyterKernel {self.namespace}/{self.container_name} created, KernelID: {self.kernel_id}")
        self._pinger = sidecar.Pinger(self._sidecar)
        self._pinger.start()
        await self.confirm_remote_startup()
        return self

    def _document(self, kernel_cmd: list[str], env: dict[str, str]) -> dict[str, Any]:
        account = self._account(env)
        path = os.path.join(self.kernel_manager.kernel_spec.resource_dir, "templates", "cmjk.yaml.j2")
        variables = {
            **(self.proxy_config.get("parameters") or {}),
            "kernel_id": self.kernel_id,
            "username": account.pw_name,
            # Not KERNEL_UID and KERNEL_GID: clients choose those, and could name any user.
            "uid": account.pw_uid,
            "gid": account.pw_gid,
            "homedir": account.pw_dir,
            "usershell": account.pw_shell or "/bin/bash",
            # The kernel manager puts the path of the gateway's own Python in the place of `python3`.
            "argv": [self.kernel_manager.kernel_spec.argv[0], *kernel_cmd[1:]],
            "response_address": self.kernel_manager.response_address,
            "public_key": self.kernel_manager.public_key,
        }
        environment = jinja2.sandbox.SandboxedEnvironment(undefined=jinja2.StrictUndefined)
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        try:
            with open(path, encoding="utf-8") as file:
                return dict(yaml.safe_load(environment.from_string(file.read()).render(**variables)))
        except (OSError, jinja2.TemplateError, yaml.YAMLError, TypeError) as err:
            self.log_and_raise(http_status_code=500, reason=f"{path} cannot be rendered: {err}")
            raise

    def _account(self, env: dict[str, str]) -> pwd.struct_passwd:
        name = env.get("KERNEL_USERNAME", "")
        try:
            return pwd.getpwnam(name) if name else pwd.getpwuid(os.getuid())
        except KeyError:
            self.log_and_raise(http_status_code=403, reason=f"user {name!r} does not exist on this machine")
            raise

    def _objects(self) -> Any:
        if self._api is None:
            try:
                config.load_incluster_config()
            except config.ConfigException:
                config.load_kube_config()
            self._api = client.CustomObjectsApi()
        return self._api

    async def _create(self, document: dict[str, Any]) -> None:
        """A kernel that is restarted has the name of the one before it, which may take a moment to go."""
        until = time.monotonic() + self.kernel_launch_timeout
        while True:
            try:
                self._objects().create_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, document)
                return
            except client.ApiException as err:
                if err.status != 409 or time.monotonic() > until:
                    raise
            self._delete()
            await asyncio.sleep(0.2)

    # The state

    def _status(self) -> dict[str, Any] | None:
        """The resource's status; None when it does not exist."""
        try:
            found = self._objects().get_namespaced_custom_object(
                GROUP, VERSION, self.namespace, PLURAL, self.container_name
            )
        except client.ApiException as err:
            if err.status == 404:
                return None
            raise
        return dict(found.get("status") or {})

    def get_initial_states(self) -> set[str]:
        """States of a kernel that lives or will."""
        return LIVING

    def get_error_states(self) -> set[str]:
        """States of a kernel that will not."""
        return {"refused", "gone"}

    def get_container_status(self, iteration: int | None) -> str:
        """The phase of the resource in lower case; an error of the API server is not the kernel's end."""
        if not self.container_name:
            return ""
        try:
            status = self._status()
        except Exception as err:
            self.log.warning(f"CMJupyterKernel {self.namespace}/{self.container_name} cannot be read: {err}")
            return "pending"
        if status is None:
            return "gone"
        phase = str(status.get("phase") or "Pending").lower()
        if phase == "refused":
            told = "; ".join(str(one.get("message")) for one in status.get("conditions") or ())
            self.log.error(f"CMJupyterKernel {self.namespace}/{self.container_name} was refused: {told}")
        if status.get("address") and not self.assigned_host:
            self.assigned_ip = self.assigned_host = status["address"]
        return phase

    def detect_launch_failure(self) -> None:
        """There is no local process that could fail."""

    def _sidecar(self) -> tuple[tuple[str, int], str] | None:
        """Where the sidecar is, and the kernel's key once it has told it."""
        if not self.assigned_ip:
            return None
        key = self.kernel_manager.session.key if self.comm_port else b""
        return (self.assigned_ip, self.comm_port or COMM_PORT), key.decode()

    # The end

    def _send_listener_request(self, request: dict[str, Any], shutdown_socket: bool = False) -> None:
        """What the gateway has to say to the sidecar: signed, and the end with a number of its own."""
        found = self._sidecar()
        if found is None:
            return
        message = {"shutdown": time.time_ns()} if "shutdown" in request else request
        try:
            sidecar.say(found[0], sidecar.signed(message, found[1]))
        except (OSError, ValueError) as err:
            self.log.debug(f"sidecar of KernelID {self.kernel_id} cannot be reached: {err}")

    def _delete(self) -> None:
        try:
            self._objects().delete_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, self.container_name)
        except client.ApiException as err:
            if err.status != 404:
                raise

    def terminate_container_resources(self) -> bool | None:
        """Delete the resource; the operator removes what it made of it."""
        if self._pinger is not None:
            self._pinger.stop()
        try:
            self._delete()
        except client.ApiException as err:
            self.log.warning(f"CMJupyterKernel {self.container_name} could not be deleted: {_reason(err)}")
            return False
        return None

    def cleanup(self) -> None:
        """Nothing of the kernel is left behind; the next one starts from scratch."""
        if self.container_name:
            self.terminate_container_resources()
        self.assigned_host = ""
        self.comm_port = 0
        super().cleanup()

    def get_process_info(self) -> dict[str, Any]:
        """What a gateway that is restarted needs to know."""
        return {**super().get_process_info(), "namespace": self.namespace, "resource": self.container_name}

    def load_process_info(self, process_info: dict[str, Any]) -> None:
        """Take over a kernel of the gateway before."""
        super().load_process_info(process_info)
        self.namespace, self.container_name = process_info["namespace"], process_info["resource"]
        self._pinger = sidecar.Pinger(self._sidecar)
        self._pinger.start()


def _reason(err: client.ApiException) -> str:
    """The API server's words."""
    try:
        return str(json.loads(err.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(err.reason)
