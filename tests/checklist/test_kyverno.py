"""Checklist G, items 151 to 153, with Kyverno's own charts and definitions: rendered by helm, accepted by a real API
server. Kyverno's programs are not run here."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests import programs, servers
from tests.operators.permissions import podtable
from tests.waiting import until

from bedplate.api.resources import CRDS, custom
from bedplate.cli.permissions import permissions
from bedplate.core import errors
from bedplate.kube import Client, config
from bedplate.kube.options import PatchType
from bedplate.lab import versions
from bedplate.operators.permissions.objects import ClusterFacts, objects

pytestmark = [pytest.mark.real, pytest.mark.external]
MODULE = "github.com/kyverno/kyverno"
POLICIES = custom("kyverno.io", "v1", "clusterpolicies", "ClusterPolicy", False)


@pytest.fixture(scope="module")
def source() -> Path:
    return programs.module(MODULE, versions.KYVERNO)


def chart(source: Path, release: str, folder: Path) -> Path:
    """A chart without the parts that are published elsewhere; they are options, and add nothing to what is shown."""
    target = folder / release
    if not target.exists():
        whole = source / "charts" / release
        # Go keeps modules in folders that nobody may write to, so that they are not copied as they are.
        for file in (path for path in whole.rglob("*") if path.is_file() and path.name != "Chart.lock"):
            place = target / file.relative_to(whole)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
        about = yaml.safe_load((target / "Chart.yaml").read_text())
        here = [each for each in about.get("dependencies", ()) if (target / "charts" / each["name"]).exists()]
        (target / "Chart.yaml").write_text(yaml.safe_dump(about | {"dependencies": here}))
    return target


def rendered(source: Path, release: str, folder: Path, *words: str) -> list[dict[str, Any]]:
    """What helm makes of a chart of Kyverno with the values that we print."""
    values = folder / f"{release}.yaml"
    values.write_text(CliRunner().invoke(permissions, ["kyverno-values", release, *words]).output)
    helm = programs.built("helm", programs.HELM)
    command = [str(helm), "template", release, str(chart(source, release, folder)), "-n", "kyverno", "-f", str(values)]
    command += ["--kube-version", versions.resolve(versions.DEFAULT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


@pytest.fixture(scope="module")
def cluster(source: Path) -> Iterator[servers.Server]:
    """A server that serves ClusterPolicies, by Kyverno's own definition."""
    with programs.own_server("real") as server:
        asyncio.run(_serve(server, source))
        yield server


async def _serve(server: servers.Server, source: Path) -> None:
    file = source / "config" / "crds" / "kyverno" / "kyverno.io_clusterpolicies.yaml"
    definition = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)
    async with Client(config.load(server.kubeconfig, environ={})) as client:
        await client.patch(
            CRDS, definition["metadata"]["name"], definition, type=PatchType.APPLY, field_manager="tests", force=True
        )

        async def is_served() -> bool:
            try:
                await client.list(POLICIES)
            except errors.BedplateError:
                return False
            return True

        await until(is_served, "ClusterPolicies are served")


def accept(server: servers.Server, policies: list[dict[str, Any]]) -> None:
    """Each is stored; unknown fields and wrong values are errors."""

    async def apply() -> None:
        async with Client(config.load(server.kubeconfig, environ={})) as client:
            for each in policies:
                await client.patch(
                    POLICIES,
                    each["metadata"]["name"],
                    each,
                    type=PatchType.APPLY,
                    field_manager="tests",
                    force=True,
                    field_validation="Strict",
                )

    asyncio.run(apply())


def test_item_151_the_policies_of_kyverno_leave_out_the_documented_namespaces(
    cluster: servers.Server, source: Path, tmp_path: Path
) -> None:
    features = ("--feature", "prometheus", "--feature", "local-path", "--feature", "gpu-operator")
    made = rendered(source, "kyverno-policies", tmp_path, *features)
    by_name = {each["metadata"]["name"]: each for each in made if each["kind"] == "ClusterPolicy"}
    accept(cluster, list(by_name.values()))

    def excluded(policy: str) -> set[str]:
        (rule,) = by_name[policy]["spec"]["rules"]
        assert rule["validate"]["failureAction"] == "Enforce"
        return set(rule["exclude"]["any"][0]["resources"]["namespaces"])

    assert excluded("disallow-host-namespaces") == {"default", "prometheus"}
    assert excluded("disallow-host-ports") == {"default", "prometheus"}
    assert excluded("disallow-host-path") == {
        *("default", "local-path-storage", "*-restricted", "prometheus", "kube-system", "gpu-operator")
    }  # fmt: skip
    plain = rendered(source, "kyverno-policies", tmp_path)
    (path,) = [each for each in plain if each["metadata"]["name"] == "disallow-host-path"]
    (rule,) = path["spec"]["rules"]
    assert rule["exclude"]["any"][0]["resources"]["namespaces"] == ["default", "*-restricted", "kube-system"]


@pytest.mark.parametrize(("words", "count"), [((), 1), (("--ha",), 3)])
def test_item_152_high_availability_is_three_replicas_of_every_controller(
    source: Path, tmp_path: Path, words: tuple[str, ...], count: int
) -> None:
    made = rendered(source, "kyverno", tmp_path, *words)
    replicas = {each["metadata"]["name"]: each["spec"].get("replicas") for each in made if each["kind"] == "Deployment"}
    assert {name: number or 1 for name, number in replicas.items()} == {
        f"kyverno-{name}-controller": count for name in ("admission", "background", "cleanup", "reports")
    }


@pytest.mark.parametrize("user", podtable.USERS)
def test_item_153_kyverno_accepts_the_policies_of_every_user(cluster: servers.Server, user: str) -> None:
    resource = podtable.resource(user, f"{user}-restricted", **podtable.USERS[user])
    made = objects(resource, ClusterFacts(has_kyverno=True))
    accept(cluster, [each for each in made if each["kind"] == "ClusterPolicy"])
