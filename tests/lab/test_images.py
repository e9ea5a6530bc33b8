"""Images made here, archives taken in, and the registry that serves them."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.core import errors
from bedplate.lab import catalog, images, registry


@pytest.fixture
def store(tmp_path: Path) -> images.Store:
    return images.Store(tmp_path / "store")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program"
    path.write_bytes(b"\x7fELF static")
    return path


def _blob(store: images.Store, digest: str) -> bytes:
    path = store.blob(digest)
    assert path is not None
    return path.read_bytes()


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1.36", "docker.io/library/busybox:1.36"),
        ("bedplate/tool", "docker.io/bedplate/tool:latest"),
        ("registry.k8s.io/pause:3.10.1", "registry.k8s.io/pause:3.10.1"),
        ("localhost/x", "localhost/x:latest"),
        ("host:5000/x", "host:5000/x:latest"),
    ],
)
def test_names_are_completed_as_runtimes_do(short: str, full: str) -> None:
    assert images.full_name(short) == full


def test_an_image_holds_its_files_links_and_settings(store: images.Store, program: Path) -> None:
    recipe = images.Recipe(
        "demo", {"bin/p": program}, entrypoint=("/bin/p",), command=("go",), links={"bin/q": "/bin/p"}
    )
    manifest = json.loads(_blob(store, store.make(recipe)))
    config = json.loads(_blob(store, manifest["config"]["digest"]))
    layer = _blob(store, manifest["layers"][0]["digest"])
    assert config["config"]["Entrypoint"] == ["/bin/p"] and config["config"]["Cmd"] == ["go"]
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()]
    assert manifest["layers"][0]["size"] == len(layer)
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        entries = {entry.name: entry for entry in tar.getmembers()}
    assert set(entries) == {"bin", "tmp", "bin/p", "bin/q"}
    assert entries["bin/p"].mode == 0o755 and entries["bin/q"].linkname == "/bin/p"


def test_the_same_content_is_made_once_and_a_changed_file_again(store: images.Store, program: Path) -> None:
    recipe = images.Recipe("demo", {"p": program})
    first = store.make(recipe)
    written = {path: path.stat().st_mtime_ns for path in (store.root / "blobs").iterdir()}
    assert store.make(recipe) == first
    assert {path: path.stat().st_mtime_ns for path in (store.root / "blobs").iterdir()} == written
    program.write_bytes(b"\x7fELF other")
    assert store.make(recipe) != first
    assert store.find("docker.io/library/demo:latest") != first


def test_an_image_whose_blobs_were_deleted_is_made_again(store: images.Store, program: Path) -> None:
    recipe = images.Recipe("demo", {"p": program})
    digest = store.make(recipe)
    path = store.blob(digest)
    assert path is not None
    path.unlink()
    assert store.make(recipe) == digest
    assert store.blob(digest) is not None


def _archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def test_a_docker_archive_is_taken_in_with_all_its_names(store: images.Store, tmp_path: Path) -> None:
    manifest = [{"Config": "c.json", "RepoTags": ["own:1", "own:2"], "Layers": ["a/layer.tar", "b/layer.tar"]}]
    files = {
        "manifest.json": json.dumps(manifest).encode(),
        "c.json": b"{}",
        "a/layer.tar": b"a",
        "b/layer.tar": b"\x1f\x8bz",
    }
    names = store.load_archive(_archive(tmp_path / "x.tar", files))
    assert names == ["docker.io/library/own:1", "docker.io/library/own:2"]
    digest = store.find(names[0])
    assert digest is not None and digest == store.find(names[1])
    kinds = [layer["mediaType"].rsplit(".", 1)[-1] for layer in json.loads(_blob(store, digest))["layers"]]
    assert kinds == ["tar", "tar+gzip"]


def test_an_oci_archive_is_taken_in(store: images.Store, tmp_path: Path) -> None:
    manifest = b'{"schemaVersion": 2}'
    digest = hashlib.sha256(manifest).hexdigest()
    note = {"org.opencontainers.image.ref.name": "example.org/own:3"}
    index = {"manifests": [{"digest": f"sha256:{digest}", "annotations": note}]}
    files = {"./index.json": json.dumps(index).encode(), f"./blobs/sha256/{digest}": manifest}
    assert store.load_archive(_archive(tmp_path / "x.tar", files)) == ["example.org/own:3"]
    assert _blob(store, store.find("example.org/own:3") or "") == manifest


def test_an_archive_of_something_else_is_refused(store: images.Store, tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid, match=r"neither manifest\.json nor index\.json"):
        store.load_archive(_archive(tmp_path / "x.tar", {"readme": b""}))


@pytest.fixture
def served(store: images.Store) -> Iterator[str]:
    handler = type("Handler", (registry.Handler,), {"stores": (store,), "log_message": lambda *_: None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_registry_serves_manifest_and_blobs_for_the_registry_meant(
    served: str, store: images.Store, program: Path
) -> None:
    digest = store.make(images.Recipe("registry.k8s.io/pause:3", {"p": program}))
    with urllib.request.urlopen(f"{served}/v2/", timeout=10) as answer:
        assert answer.status == 200
    with urllib.request.urlopen(f"{served}/v2/pause/manifests/3?ns=registry.k8s.io", timeout=10) as answer:
        assert answer.headers["Docker-Content-Digest"] == digest
        assert answer.headers["Content-Type"] == "application/vnd.oci.image.manifest.v1+json"
        manifest = json.loads(answer.read())
    layer = manifest["layers"][0]
    with urllib.request.urlopen(f"{served}/v2/pause/blobs/{layer['digest']}", timeout=10) as answer:
        assert len(answer.read()) == layer["size"]
    for absent in (
        "pause/manifests/3?ns=docker.io",
        "pause/manifests/4?ns=registry.k8s.io",
        "x/blobs/sha256:00",
        "odd",
    ):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{served}/v2/{absent}", timeout=10)
        assert caught.value.code == 404
        caught.value.close()


def test_every_image_kubeadm_asks_for_has_a_recipe_and_an_unknown_one_is_an_error(tmp_path: Path) -> None:
    names = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "etcd", "etcdctl", "coredns"]
    programs = {name: tmp_path / name for name in names}
    for path in programs.values():
        path.write_bytes(b"x")
    asked = [f"registry.k8s.io/{name}:v1" for name in names if name != "etcdctl"] + ["registry.k8s.io/pause:3.10"]
    recipes = {recipe.name: recipe for recipe in catalog.kubeadm_recipes(asked, programs, tmp_path / "coredns")}
    assert set(recipes) == set(asked)
    assert set(recipes["registry.k8s.io/etcd:v1"].files) == {"usr/local/bin/etcd", "usr/local/bin/etcdctl"}
    with pytest.raises(errors.Terminal, match="konnectivity"):
        catalog.kubeadm_recipes(["registry.k8s.io/konnectivity:v1"], programs, tmp_path / "coredns")
