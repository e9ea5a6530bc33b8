"""CMJupyterKernel as the operator reads it.

In: JSON of the API server. Out: frozen values. `pod` and `service` stay plain mappings: they are passed on as given.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from bedplate.api import meta
from bedplate.api.resources import custom
from bedplate.operators.jupyter import names

__all__ = ["KERNELS", "Kernel", "KernelSpec", "KernelStatus"]


class KernelSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a kernel is to be. Field names are those of the resource."""

    kernel_id: str = ""
    uid: int = 0
    gid: int = 0
    username: str = ""
    homedir: str = ""
    usershell: str = ""
    image_os_flavor: str = ""
    etc_passwd: str = ""
    etc_group: str = ""
    sidecar_command: tuple[str, ...] = ()
    sidecar_args: tuple[str, ...] = ()
    kernel_connection_file_path: str = names.CONNECTION_FILE
    create_connection_file: bool = False
    spark_pod_template_path: str = ""
    spark_pod_template: str = ""
    pod: dict[str, Any] = msgspec.field(default_factory=dict)
    service: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def checksum(self) -> str:
        """A short text that another spec does not have."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]


class KernelStatus(meta.Model, frozen=True):
    """What became of it."""

    phase: str = ""
    pod_name: str = ""
    service_name: str = ""
    address: str = ""
    observed_generation: int = 0
    conditions: tuple[meta.Condition, ...] = ()


class Kernel(meta.Object, frozen=True):
    """One CMJupyterKernel."""

    spec: KernelSpec = KernelSpec()
    status: KernelStatus = KernelStatus()


KERNELS = custom(names.GROUP, names.VERSION, names.PLURAL, names.KIND, True, Kernel)
