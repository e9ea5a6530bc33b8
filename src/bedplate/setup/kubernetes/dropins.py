"""The files of containerd on the nodes of a cluster, as configurations of the role `generic::containerd`. Pure.

In: settings. Out: `cri.toml` (`containerd-cri`), with the NVIDIA runtime `nvidia-cri.toml` (`nvidia-cri`) besides, and
with a registry mirror its `hosts.toml`. The logins of a mirror and of Docker Hub are secret variables of the role: the
tree does not show them, and the files on the nodes are for their owner alone.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from bedplate.head.entities.roles import CONTAINERD_DROPINS, NVIDIA_CRI
from bedplate.setup.kubernetes import kubeadm
from bedplate.setup.kubernetes.settings import Settings

__all__ = ["configurations", "containerd", "environments"]

Object = dict[str, Any]
HOSTS = "/etc/containerd/certs.d/docker.io/hosts.toml"
_LOGIN, _HUB_LOGIN = "mirror_login", "docker_io_login"
_HUB = "registry-1.docker.io"
_NVIDIA = "/usr/bin/nvidia-container-runtime"


def configurations(settings: Settings) -> dict[str, Object]:
    """The files by the name of their configuration."""
    mode = "0600" if settings.hub_login else ""
    files = {"containerd-cri": _static(f"{CONTAINERD_DROPINS}/cri.toml", containerd(settings), mode)}
    if settings.has_nvidia:
        files[NVIDIA_CRI] = _static(f"{CONTAINERD_DROPINS}/nvidia-cri.toml", nvidia(settings), mode)
    if settings.mirror:
        files["docker-io-mirror"] = _static(HOSTS, _hosts(settings), "0600" if settings.mirror_login else "")
    return files


def environments(settings: Settings) -> dict[str, dict[str, Object]]:
    """The variables of those files, as a submode; none without a login."""
    logins = {_LOGIN: settings.mirror_login, _HUB_LOGIN: settings.hub_login}
    variables = {
        name: {
            "type": "GenericRoleEnvironment",
            "values": {"secret_value": base64.b64encode(":".join(login).encode()).decode()},
        }
        for name, login in logins.items()
        if login
    }
    return {"environments": variables} if variables else {}


def _static(path: str, content: str, mode: str = "") -> Object:
    values = {"filename": path, "content": content, **({"filemask": mode} if mode else {})}
    return {"type": "static", "values": values}


def _hosts(settings: Settings) -> str:
    url = settings.mirror if "://" in settings.mirror else f"https://{settings.mirror}"
    # The server is asked last; the mirror as such leaves nobody else.
    last = url if settings.mirror_alone else f"https://{_HUB}"
    text = f'server = "{last}"\n\n[host."{url}"]\n  capabilities = ["pull", "resolve"]\n'
    if settings.mirror_login:
        # Sent to the mirror alone, never to Docker Hub.
        text += f'\n[host."{url}".header]\n  Authorization = "Basic ${{{_LOGIN}}}"\n'
    return text


def containerd(settings: Settings) -> str:
    """The drop-in of containerd: one file, for older releases take a plugin's settings from the last one alone."""
    sandbox = settings.sandbox or _sandbox(settings)
    return f"""\
version = 2

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {json.dumps(sandbox)}
  # Pods start also where containerd may not lower the score by which the kernel chooses what to end.
  restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/opt/cni/bin"
  conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = {json.dumps(settings.cgroup_driver == "systemd")}

[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "/etc/containerd/certs.d"
{_hub(settings)}"""


def _hub(settings: Settings) -> str:
    """The login of Docker Hub, which gives tokens for it: a header of a host would not do."""
    if not settings.hub_login:
        return ""
    return f"""
[plugins."io.containerd.grpc.v1.cri".registry.configs."{_HUB}".auth]
  auth = "${{{_HUB_LOGIN}}}"
"""


def nvidia(settings: Settings) -> str:
    """The drop-in with the runtime of NVIDIA. It comes after the other one, and repeats it: before release 2 containerd
    takes a plugin's settings from the last file alone."""
    return f"""\
{containerd(settings)}
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
  BinaryName = "{_NVIDIA}"
  SystemdCgroup = {json.dumps(settings.cgroup_driver == "systemd")}
"""


def _sandbox(settings: Settings) -> str:
    return f"{settings.repository}/{kubeadm.PAUSE.rpartition('/')[2]}" if settings.repository else kubeadm.PAUSE
