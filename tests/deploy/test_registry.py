"""A registry of one's own: charts are installed from it and images pushed to it, without docker or podman."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests import programs, servers, tiers
from tests.deploy.conftest import CHARTS, Program, chart_folder, documents, of_kind, run_tool, unique

from bedplate.lab import binaries, credentials

# Images are assembled with the linker and the container programs of the machine.
pytestmark = pytest.mark.external

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """The address of a registry of the distribution project, empty at first."""
    with _running({}) as (address, _):
        yield address


@dataclass(frozen=True)
class TlsRegistry:
    """A registry as users have one: over HTTPS, with a certificate of an authority that they trust."""

    address: str
    authority: Path

    @property
    def environ(self) -> dict[str, str]:
        """What makes helm, Python and curl trust it."""
        return {"SSL_CERT_FILE": str(self.authority), "CURL_CA_BUNDLE": str(self.authority)}


@contextlib.contextmanager
def tls_registry(folder: Path, host: str = "127.0.0.1") -> Iterator[TlsRegistry]:
    authority = credentials.Authority.open(folder / "registry-pki")
    pair = authority.issue("registry", "registry", hosts=[host])
    tls = {"certificate": str(pair.certificate), "key": str(pair.key)}
    with _running(tls, host, authority.certificate_path) as (address, _):
        yield TlsRegistry(address, authority.certificate_path)


@contextlib.contextmanager
def _running(
    tls: dict[str, str], host: str = "127.0.0.1", authority: Path | None = None
) -> Iterator[tuple[str, servers.Processes]]:
    tiers.guard("registry")
    program = binaries.cached("registry")
    if program is None:
        pytest.skip("registry is not in the cache folder (make setup builds it)")
    processes = servers.Processes("registry")
    try:
        address = f"{host}:{servers.free_port()}"
        settings = {
            "version": 0.1,
            "log": {"accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(processes.folder / "data")}},
            "http": {"addr": address, **({"tls": tls} if tls else {})},
        }
        config = processes.folder / "config.yml"
        config.write_text(yaml.safe_dump(settings))
        processes.start("registry", str(program), "serve", str(config), env={"OTEL_TRACES_EXPORTER": "none"})
        url = f"{'https' if tls else 'http'}://{address}/v2/"
        processes.wait_until("registry", lambda: answers(url, authority))
        yield address, processes
    finally:
        processes.stop()


def answers(url: str, authority: Path | None = None) -> bool:
    trust = ssl.create_default_context(cafile=authority) if authority else None
    try:
        with urllib.request.urlopen(url, timeout=5, context=trust) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def fetch(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept": MANIFEST})
    with urllib.request.urlopen(request, timeout=60) as answer:
        content: bytes = answer.read()
    return content


@pytest.mark.parametrize("chart", CHARTS)
def test_a_chart_is_installed_from_the_registry_and_removed_again(
    server: servers.Server, kubectl: Program, namespace: str, registry: str, tmp_path: Path, chart: str
) -> None:
    helm = Program(programs.built("helm", programs.HELM), tmp_path, server)
    helm("package", chart_folder(chart), "--destination", tmp_path)
    (packaged,) = tmp_path.glob("*.tgz")
    helm("push", packaged, f"oci://{registry}/helm-charts", "--plain-http")
    name = chart_folder(chart).name
    version = yaml.safe_load((chart_folder(chart) / "Chart.yaml").read_text())["version"]
    release = unique("site")
    # Nobody runs pods here; names that a cluster has once are made this test's own.
    own = ["--set", "deployment.replicas=0,serviceAccount.name=own"]
    if chart == "nvidia-bmm":
        own += ["--set", "rbac.name="]
    where = ("-n", namespace, "--create-namespace", "--plain-http")
    said = helm("install", release, f"oci://{registry}/helm-charts/{name}", "--version", version, *where, *own)
    try:
        assert "STATUS: deployed" in said and f"{release}-{name} is installed" in said
        found = json.loads(kubectl("get", "deployment", f"{release}-{name}", "-n", namespace, "-o", "json"))
        assert found["spec"]["template"]["spec"]["containers"][0]["image"].endswith(f":{version}")
        kubectl("get", "clusterrole", f"system:{release}-{name}")
        upgraded = ("--reuse-values", "--set", "verbosity=6")
        helm("upgrade", release, f"oci://{registry}/helm-charts/{name}", "--version", version, "--plain-http",
             "-n", namespace, *upgraded)  # fmt: skip
        deployed = documents(helm("get", "manifest", release, "-n", namespace))
        assert "--v=6" in of_kind(deployed, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    finally:
        helm("uninstall", release, "-n", namespace)
    assert kubectl.attempt("get", "clusterrole", f"system:{release}-{name}").returncode == 1


def useless_containers(folder: Path) -> Path:
    """A folder for the PATH in which docker, podman and buildah are of no use."""
    place = folder / "bin"
    place.mkdir()
    for name in ("docker", "podman", "buildah"):
        (place / name).write_text("#!/bin/sh\nexit 1\n")
        (place / name).chmod(0o755)
    return place


@pytest.fixture
def without_containers(tmp_path: Path) -> dict[str, str]:
    """An environment in which docker, podman and buildah are of no use."""
    path = f"{useless_containers(tmp_path)}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(tmp_path), "BEDPLATE_CACHE": str(binaries.cache_folder())}


def test_an_image_is_pushed_without_a_container_program(registry: str, without_containers: dict[str, str]) -> None:
    image = f"{registry}/managers:test"
    for _ in range(2):
        done = run_tool("image.py", "push", "--image", image, "--plain-http", env=without_containers)
        assert done.returncode == 0, done.stderr
    manifest = json.loads(fetch(f"http://{registry}/v2/managers/manifests/test"))
    config = json.loads(fetch(f"http://{registry}/v2/managers/blobs/{manifest['config']['digest']}"))
    assert config["config"]["Entrypoint"] == ["/usr/bin/cloud-controller-manager"]
    for layer in manifest["layers"]:
        assert len(fetch(f"http://{registry}/v2/managers/blobs/{layer['digest']}")) == layer["size"]


def test_an_image_is_built_as_an_archive_without_a_container_program(
    without_containers: dict[str, str],
) -> None:
    name = unique("managers")
    done = run_tool("image.py", "build", "--image", f"registry.example/{name}:1", env=without_containers)
    try:
        assert done.returncode == 0, done.stderr
        assert f"build/image/{name}-1.tar" in done.stdout
    finally:
        for path in (Path(__file__).parents[2] / "build" / "image").glob(f"{name}*"):
            path.unlink()


@pytest.mark.parametrize(
    ("working", "line"),
    [
        (("docker", "podman"), "docker build --tag a/b:1 "),
        (("podman", "buildah"), "podman build --tag a/b:1 "),
        (("buildah",), "buildah bud --tag a/b:1 "),
    ],
)
def test_the_first_container_program_that_works_builds_the_dockerfile(
    without_containers: dict[str, str], tmp_path: Path, working: tuple[str, ...], line: str
) -> None:
    said = tmp_path / "said"
    for name in working:
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\necho {name} $* >> {said}\n")
    done = run_tool("image.py", "build", "--image", "a/b:1", env=without_containers)
    assert done.returncode == 0, done.stderr
    asked, built = said.read_text().splitlines()
    assert asked.endswith(" info")
    assert built.startswith(line) and (Path(built.split()[-1]) / "Dockerfile").exists()
    assert (Path(built.split()[-1]) / "build/rootfs/base.tar").exists()


def test_a_registry_that_refuses_is_named_with_its_answer(without_containers: dict[str, str]) -> None:
    image = f"127.0.0.1:{servers.free_port()}/managers:test"
    done = run_tool("image.py", "push", "--image", image, "--plain-http", env=without_containers)
    assert done.returncode != 0
    assert "cannot be reached" in done.stderr and "Traceback" not in done.stderr
