"""The root file system of the image: what is in it, and that it runs where nothing may be written."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import uuid
from pathlib import Path

import pytest
from tests import programs
from tests.deploy.conftest import ROOT, load_tool, read_json

from bedplate.lab import images

# Images are assembled with the linker and the container programs of the machine.
pytestmark = pytest.mark.external

sbom = load_tool("sbom")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a container is started with runc")


def test_the_lab_takes_the_archive(archive: Path, tmp_path: Path) -> None:
    store = images.Store(tmp_path)
    assert store.load_archive(archive) == ["registry.example/managers:test"]
    digest = store.find("registry.example/managers:test")
    assert digest is not None and store.blob(digest) is not None


def test_every_digest_of_the_archive_is_that_of_its_content(archive: Path) -> None:
    with tarfile.open(archive) as image:
        for member in image.getmembers():
            if member.name.startswith("blobs/sha256/"):
                content = image.extractfile(member)
                assert content is not None
                assert hashlib.sha256(content.read()).hexdigest() == member.name.rpartition("/")[2]
        entry = read_json(image, "manifest.json")[0]
        config = read_json(image, entry["Config"])
        for diff_id, path in zip(config["rootfs"]["diff_ids"], entry["Layers"], strict=True):
            with tarfile.open(fileobj=image.extractfile(path), mode="r:gz") as layer:
                assert layer.fileobj is not None
                layer.fileobj.seek(0)
                assert "sha256:" + hashlib.sha256(layer.fileobj.read()).hexdigest() == diff_id


def test_a_second_assembly_elsewhere_gives_the_same_bytes(tmp_path: Path) -> None:
    # A copy, so that nobody changes a source between the two.
    for part in ("src", "tools", "requirements"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    digests = []
    for number in ("one", "two"):
        tool = str(tmp_path / "tools" / "rootfs.py")
        command = [sys.executable, tool, "--output", str(tmp_path / number), "--without-plugin"]
        environ = os.environ | {"BEDPLATE_CACHE": str(tmp_path / f"cache-{number}")}
        subprocess.run(command, check=True, timeout=600, env=environ, capture_output=True)
        layers = (tmp_path / number / name for name in ("base.tar", "app.tar"))
        digests.append([hashlib.sha256(layer.read_bytes()).hexdigest() for layer in layers])
    assert digests[0] == digests[1]


def test_the_image_holds_no_shell_no_installer_and_no_tests(unpacked: Path) -> None:
    names = {path.name for path in unpacked.rglob("*")}
    assert not names & {"sh", "bash", "busybox", "pip", "ensurepip", "idlelib", "pytest", "mypy", "hypothesis"}
    assert not [path for path in unpacked.rglob("test*") if path.is_dir()]
    writable = [path for path in unpacked.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022]
    assert writable == [unpacked / "tmp"]


def test_the_image_holds_what_managers_need_and_no_part_of_the_larger_systems(unpacked: Path) -> None:
    modules = unpacked / "usr/lib/bedplate"
    assert (modules / "bedplate/cloud").is_dir() and (modules / "bedplate/ipam").is_dir()
    for part in (
        "bedplate/agent",
        "bedplate/ui",
        "bedplate/head",
        "bedplate/apiserver",
        "bedplate/store",
        "bedplate/lab",
    ):
        assert not (modules / part).exists()
    for package in ("prompt_toolkit", "jinja2", "rich", "grpc"):
        assert not (modules / package).exists()
    assert not (unpacked / "usr/bin/cmsh").exists()


def test_the_image_holds_every_program_that_manifests_start(unpacked: Path) -> None:
    for program in ("ipam-controller", "ipam-node", "nv-ipam", "cloudlycke-lb-agent", "cloud-controller-manager"):
        assert (unpacked / program).exists() and (unpacked / "usr/bin" / program).is_file(), program


def test_the_image_says_what_it_holds_and_under_which_licences(unpacked: Path) -> None:
    listed = json.loads((unpacked / "usr/share/sbom/bedplate.spdx.json").read_text())["packages"]
    names = {each["name"]: each["versionInfo"] for each in listed}
    assert names["python"] == ".".join(map(str, sys.version_info[:3])) and "aiohttp" in names
    assert (unpacked / "usr/share/doc/bedplate/copyright").read_text() == (ROOT / "LICENSE").read_text()
    records = sorted(path.name for path in (unpacked / "var/lib/dpkg/status.d").glob("*"))
    if shutil.which("dpkg-query") is not None:
        assert "libc6" in records and (unpacked / "etc/os-release").is_file()
        for name in records:
            assert (unpacked / "usr/share/doc" / name / "copyright").is_file(), name
            assert names[name], name
    # Every shared library is one of a package in the list, or is listed itself; Python's is that of the interpreter.
    libraries = [path for path in unpacked.rglob("*.so.*") if "/usr/lib/bedplate/" not in str(path)]
    assert libraries
    packaged = sbom.owners(sbom._run("dpkg-query", "--search", *(f"*/{path.name}" for path in libraries)))
    known = {Path(path).name for path, package in packaged.items() if package in names}
    for path in libraries:
        assert path.name in known or path.name.partition(".so")[0] in names or path.name.startswith("libpython"), path
    for path in unpacked.rglob("*.dist-info"):
        assert list(path.rglob("*LICEN*")) or path.name.startswith("bedplate-"), path


def test_the_image_runs_as_nobody_in_particular(archive: Path, unpacked: Path) -> None:
    with tarfile.open(archive) as image:
        config = read_json(image, read_json(image, "manifest.json")[0]["Config"])["config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["/usr/bin/cloud-controller-manager"]
    assert "nonroot:x:65532:65532:" in (unpacked / "etc/passwd").read_text()
    environ = dict(pair.split("=", 1) for pair in config["Env"])
    assert (unpacked / environ["SSL_CERT_FILE"][1:]).read_text().count("BEGIN CERTIFICATE") > 50


class Container:
    """Runs programs of the image the way a kubelet does with our manifests: no rights, nothing writable."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self._folder = root, folder

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        process = {
            "user": {"uid": 65532, "gid": 65532},
            "args": list(command),
            "env": ["HOME=/home/nonroot", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
            "cwd": "/",
            "noNewPrivileges": True,
            "capabilities": {},
        }
        spaces = [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")]
        spec = {
            "ociVersion": "1.0.2",
            "process": process,
            "root": {"path": str(self._root), "readonly": True},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
            "linux": {"namespaces": spaces},
        }
        (self._root / "proc").mkdir(exist_ok=True)
        (self._root / "dev").mkdir(exist_ok=True)
        (self._folder / "config.json").write_text(json.dumps(spec))
        name = f"bedplate-test-{uuid.uuid4().hex[:8]}"
        state = ["--root", str(self._folder / "state")]
        try:
            return subprocess.run(
                ["runc", *state, "run", "--bundle", str(self._folder), name],
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        finally:
            subprocess.run(["runc", *state, "delete", "--force", name], capture_output=True, timeout=60, check=False)


@pytest.fixture
def container(unpacked: Path, tmp_path: Path) -> Container:
    programs.on_path("runc")
    return Container(unpacked, tmp_path)


@needs_root
@pytest.mark.root
@pytest.mark.parametrize(
    "program",
    [
        "/usr/bin/cloud-controller-manager",
        "/nvidia-bmm-cloud-controller-manager",
        "/usr/bin/oxide-cloud-controller-manager",
        "/bin/cloudlycke-cloud-controller-manager",
        "/ipam-controller",
        "/ipam-node",
    ],
)
def test_each_program_runs_at_the_path_its_users_know(container: Container, program: str) -> None:
    done = container.run(program, "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@needs_root
@pytest.mark.root
def test_the_images_arguments_are_the_managers_flags(container: Container) -> None:
    done = container.run("/usr/bin/cloud-controller-manager", "--cloud-provider", "oxide", "--kubeconfig", "/nowhere")
    assert done.returncode == 1
    assert "OXIDE_HOST" in done.stderr or "/nowhere" in done.stderr
    unnamed = container.run("/usr/bin/cloud-controller-manager", "--kubeconfig", "/nowhere")
    assert unnamed.returncode == 1
    assert "--cloud-provider" in unnamed.stderr


@needs_root
@pytest.mark.root
def test_every_module_of_bedplate_loads_inside(container: Container) -> None:
    script = (
        "import sys; sys.path.append('/usr/lib/bedplate')\n"
        "import importlib, pkgutil, os, ssl, bedplate\n"
        "others = ('__main__', '.libstoresum')\n"
        "names = [m.name for m in pkgutil.walk_packages(bedplate.__path__, 'bedplate.')]\n"
        "names = [name for name in names if not name.endswith(others)]\n"
        "for name in names: importlib.import_module(name)\n"
        "assert ssl.create_default_context().get_ca_certs()\n"
        "print(os.getuid(), len(names))\n"
    )
    done = container.run("/usr/bin/python3", "-IBSXutf8", "-c", script)
    assert done.returncode == 0, done.stderr
    user, count = done.stdout.split()
    assert user == "65532" and int(count) > 150
