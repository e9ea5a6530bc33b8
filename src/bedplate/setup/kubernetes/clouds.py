"""The settings of a cloud, as the object that its cloud controller manager reads. They are secret: not for the tree.

In: a provider and a file: the settings themselves, or a Secret or ConfigMap with them. Out: one object for the cluster.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from bedplate.core import errors

__all__ = ["PROVIDERS", "config"]

PROVIDERS = {
    "nvidia-bmm": ("Secret", "nvidia-bmm-cloud-config", "cloud-config"),
    "oxide": ("Secret", "oxide-cloud-controller-manager", ""),
    "cloudlycke": ("ConfigMap", "cloudlycke-cloud-config", "cloud-config.yaml"),
}
"""Kind, name and key of the object of each provider; without a key the settings are the object's keys."""


def config(provider: str, path: str) -> dict[str, Any]:
    """The object of a provider's settings. Raises `Invalid`."""
    kind, name, key = PROVIDERS[provider]
    if not path:
        raise errors.Invalid(
            f"the cloud controller manager of {provider} needs the settings of its cloud",
            hint="name a file in kubernetes.addons.ccm.cloud_config",
        )
    try:
        text = Path(path).read_text()
        content = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as err:
        raise errors.Invalid(f"{path} cannot be read: {' '.join(str(err).split())}") from err
    if not isinstance(content, dict) or not content:
        raise errors.Invalid(f"{path} has no settings of {provider}")
    if content.get("kind") in ("Secret", "ConfigMap"):
        given = (content["kind"], (content.get("metadata") or {}).get("name"))
        if given != (kind, name):
            raise errors.Invalid(f"{path} has {given[0]} {given[1]}, and {provider} reads {kind} {name}")
        return {**content, "metadata": {**content["metadata"], "namespace": "kube-system"}}
    data = {key: text} if key else {str(name): str(value) for name, value in content.items()}
    field = "stringData" if kind == "Secret" else "data"
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "kube-system"}, field: data}
