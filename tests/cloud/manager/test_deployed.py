"""The manager of a cluster, found from outside: which containers are managers, and what they were told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from bedplate.cloud.manager import deployed
from bedplate.core import errors

ROOT = Path(__file__).parents[3]
NVIDIA = ("/nvidia-bmm-cloud-controller-manager", "--leader-elect-resource-name=nvidia-bmm-cloud-controller-manager")


def pod(*command: str, **more: Any) -> Mapping[str, Any]:
    return {"serviceAccountName": "acc", "containers": [{"name": "c", "command": list(command), **more}]}


def managers_of(spec: Mapping[str, Any]) -> list[deployed.Manager]:
    return list(deployed.of_workload("Deployment", {"namespace": "ns", "name": "m"}, spec))


def test_a_manager_is_known_by_its_program_or_by_the_provider_that_its_flags_name() -> None:
    (named,) = managers_of(pod(*NVIDIA))
    assert (named.where, named.account, named.providers) == ("Deployment ns/m", "acc", ("nvidia-bmm",))
    assert named.options.generic.leader_elect_resource_name == "nvidia-bmm-cloud-controller-manager"
    (by_flag,) = managers_of({"containers": [{"args": ["ccm", "run", "--cloud-provider=oxide,cloudlycke"]}]})
    assert (by_flag.providers, by_flag.account) == (("oxide", "cloudlycke"), "default")


def test_other_programs_and_managers_of_other_clouds_are_left_alone() -> None:
    assert managers_of(pod("/coredns", "-conf", "/etc/coredns/Corefile")) == []
    assert managers_of(pod("/bin/aws-cloud-controller-manager", "--v=2")) == []
    assert managers_of(pod("/ccm", "--cloud-provider=aws")) == []


@pytest.mark.parametrize(
    ("file", "provider"),
    [
        ("manifests/cloudlycke-ccm.yaml", "cloudlycke"),
        ("manifests/oxide-cloud-controller-manager.yaml", "oxide"),
        ("deploy/manifests/deployment.yaml", "nvidia-bmm"),
    ],
)
def test_every_shipped_manifest_is_found(file: str, provider: str) -> None:
    managers = [
        manager
        for document in yaml.safe_load_all((ROOT / file).read_text())
        if document and document["kind"] in ("Deployment", "DaemonSet")
        for manager in deployed.of_workload(
            document["kind"], document["metadata"], document["spec"]["template"]["spec"]
        )
    ]
    (manager,) = managers
    assert manager.providers == (provider,)


def test_the_one_of_several_managers_is_chosen_by_its_cloud() -> None:
    managers = [*managers_of(pod(*NVIDIA)), *managers_of(pod("/oxide-cloud-controller-manager"))]
    chosen = deployed.choose(managers, ["oxide"])
    assert chosen is not None and chosen.providers == ("oxide",)
    assert deployed.choose(managers, ["cloudlycke"]) is None
    with pytest.raises(errors.Invalid, match="several managers") as caught:
        deployed.choose(managers, ())
    assert "--cloud-provider=nvidia-bmm" in errors.describe(caught.value)
