"""Finding and building programs: everything that can be seen without the network."""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from bedplate.core import errors
from bedplate.lab import binaries, building, versions


def _program(path: Path, answer: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o755)
    return path


def _go(folder: Path, body: str = "") -> Path:
    """A stand-in for Go: `go build` writes what -o names, `go mod download` answers with a go.mod."""
    upstream = folder / "upstream.mod"
    folder.mkdir(parents=True, exist_ok=True)
    upstream.write_text(
        "module k8s.io/kubernetes\n\ngo 1.25.0\n\nrequire (\n\tk8s.io/api v0.0.0\n\tgithub.com/x/y v1.0.0\n)\n"
    )
    script = f"""#!/bin/sh
echo "$@" >> {folder}/calls
case "$1" in
  version) echo "go version go1.26.8 linux/amd64"; exit 0 ;;
  mod) echo '{{"GoMod": "{upstream}"}}'; exit 0 ;;
esac
{body}
while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
echo built > $out; chmod +x $out
"""
    path = folder / "go"
    path.write_text(script)
    path.chmod(0o755)
    return path


def _environ(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"BEDPLATE_CACHE": str(tmp_path / "cache"), "PATH": f"{tmp_path / 'path'}:/usr/bin:/bin", **more}


@pytest.mark.parametrize("text", ["1.35", "v1.35", "1.35.4", "v1.35.4", " 1.35.4 "])
def test_short_and_long_versions_mean_the_same_release(text: str) -> None:
    assert versions.resolve(text) == "v1.35.4"


@pytest.mark.parametrize("text", ["", "latest", "1", "1.35.4-rc.1", "1.x"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(errors.Invalid, match="not a Kubernetes version"):
        versions.resolve(text)


def test_an_unknown_minor_asks_for_its_patch_release() -> None:
    with pytest.raises(errors.Invalid) as caught:
        versions.resolve("1.12")
    assert "1.12.x" in caught.value.hint
    assert versions.resolve("1.12.3") == "v1.12.3"


def test_the_cache_is_where_the_environment_says(tmp_path: Path) -> None:
    assert binaries.cache_folder({"BEDPLATE_CACHE": "/a/b"}) == Path("/a/b")
    assert binaries.cache_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/bedplate")
    assert binaries.cache_folder({}) == Path.home() / ".cache" / "bedplate"


def test_a_given_folder_comes_before_the_cache_and_the_cache_before_the_path(tmp_path: Path) -> None:
    cached = _program(tmp_path / "cache/kubernetes/v1.35.4/bin/kubectl", "Client Version: v1.35.4")
    on_path = _program(tmp_path / "path/kubectl", "Client Version: v1.35.1")
    given = _program(tmp_path / "assets/kubectl", "Client Version: v1.35.0")
    environ = _environ(tmp_path, KUBEBUILDER_ASSETS=str(tmp_path / "assets"))
    assert binaries.ensure(["kubectl"], "1.35", environ=environ) == {"kubectl": given}
    given.unlink()
    assert binaries.ensure(["kubectl"], "1.35", environ=environ) == {"kubectl": cached}
    cached.unlink()
    assert binaries.ensure(["kubectl"], "1.35", environ=environ) == {"kubectl": on_path}


def test_a_given_program_of_another_version_is_not_used_and_that_is_said(tmp_path: Path) -> None:
    cached = _program(tmp_path / "cache/kubernetes/v1.35.4/bin/kube-apiserver", "")
    _program(tmp_path / "assets/kube-apiserver", "Kubernetes v1.34.4")
    said: list[str] = []
    environ = _environ(tmp_path, KUBEBUILDER_ASSETS=str(tmp_path / "assets"))
    assert binaries.ensure(["kube-apiserver"], "1.35.4", environ=environ, progress=said.append) == {
        "kube-apiserver": cached
    }
    assert said == [f"{tmp_path}/assets/kube-apiserver is 1.34.4, not 1.35.4: ignored"]


def test_a_patch_release_asked_for_is_the_one_used(tmp_path: Path) -> None:
    _program(tmp_path / "path/kubelet", "Kubernetes v1.35.1")
    _go(tmp_path / "path")
    found = binaries.ensure(["kubelet"], "1.35.4", environ=_environ(tmp_path))
    assert found == {"kubelet": tmp_path / "cache/kubernetes/v1.35.4/bin/kubelet"}


@pytest.mark.parametrize(("has", "is_used"), [("3.4.23", True), ("3.6.0", True), ("3.3.25", False)])
def test_an_etcd_old_enough_to_fail_is_not_used(tmp_path: Path, has: str, is_used: bool) -> None:
    mine = _program(tmp_path / "path/etcd", f"etcd Version: {has}")
    _go(tmp_path / "path")
    assert (binaries.ensure(["etcd"], environ=_environ(tmp_path))["etcd"] == mine) is is_used


def test_images_are_built_from_exact_versions_only(tmp_path: Path) -> None:
    _program(tmp_path / "path/etcd", "etcd Version: 3.5.0")
    _go(tmp_path / "path")
    found = binaries.ensure(["etcd"], environ=_environ(tmp_path), only_exact=True)
    assert found["etcd"].parts[-4:] == ("etcd", versions.ETCD, "bin", "etcd")


def test_only_the_programs_asked_for_are_built_and_progress_names_the_rest(tmp_path: Path) -> None:
    _go(tmp_path / "path")
    said: list[str] = []
    found = binaries.ensure(["kubelet", "kubeadm"], "1.35.4", environ=_environ(tmp_path), progress=said.append)
    assert {path.name for path in (tmp_path / "cache/kubernetes/v1.35.4/bin").iterdir()} == {"kubelet", "kubeadm"}
    assert all(path.read_text() == "built\n" for path in found.values())
    assert said[0] == "building kubelet v1.35.4 (1/2, then kubeadm)"
    assert said[-1].startswith("building kubeadm v1.35.4 (2/2): done in")
    calls = (tmp_path / "path/calls").read_text()
    binaries.ensure(["kubelet", "kubeadm"], "1.35.4", environ=_environ(tmp_path))
    assert (tmp_path / "path/calls").read_text() == calls, "a second run must not call Go"


def test_nothing_is_built_where_building_is_forbidden(tmp_path: Path) -> None:
    _go(tmp_path / "path")
    environ = _environ(tmp_path, BEDPLATE_NO_BUILD="1")
    with pytest.raises(errors.Invalid, match=r"kubelet, kubeadm: not in .*/cache, and BEDPLATE_NO_BUILD forbids"):
        binaries.ensure(["kubelet", "kubeadm"], "1.35.4", environ=environ)
    assert not (tmp_path / "path/calls").exists() and not (tmp_path / "cache").exists()
    binaries.ensure(["kubelet"], "1.35.4", environ=_environ(tmp_path))
    assert binaries.ensure(["kubelet"], "1.35.4", environ=environ)["kubelet"].name == "kubelet"


def test_a_build_that_fails_shows_the_compilers_words_and_leaves_no_half_file(tmp_path: Path) -> None:
    _go(tmp_path / "path", body='echo "proxy: no route to host" >&2; echo half > "$6"; exit 1')
    with pytest.raises(errors.Unavailable, match="no route to host"):
        binaries.ensure(["kubectl"], "1.35.4", environ=_environ(tmp_path))
    assert list((tmp_path / "cache/kubernetes/v1.35.4/bin").iterdir()) == []


def test_a_build_that_takes_too_long_is_ended_and_can_be_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "_PATIENCE_S", 0.1)
    go = _go(tmp_path / "path", body="exec sleep 60")
    builder = building.Builder(tmp_path / "cache", _environ(tmp_path), lambda _line: None)
    source = building.Source("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", "", "v1.35.4")
    with pytest.raises(errors.Unavailable, match=r"could not build kubectl v1\.35\.4 within") as caught:
        builder._compile(str(go), tmp_path, source, tmp_path / "bin" / "kubectl")
    assert "run it again" in caught.value.hint
    assert list((tmp_path / "bin").iterdir()) == []


def test_a_program_another_process_builds_is_waited_for_and_not_built_twice(tmp_path: Path) -> None:
    _go(tmp_path / "path")
    locks = tmp_path / "cache/locks"
    locks.mkdir(parents=True)
    said: list[str] = []
    with open(locks / "kubernetes-v1.35.4.lock", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        waiter = threading.Thread(
            target=binaries.ensure,
            args=(["kubectl"], "1.35.4"),
            kwargs={"environ": _environ(tmp_path), "progress": said.append},
        )
        waiter.start()
        while not said:
            time.sleep(0.01)
        _program(tmp_path / "cache/kubernetes/v1.35.4/bin/kubectl", "made by the other")
    waiter.join(30)
    assert said[0] == "waiting for another process to build kubectl v1.35.4"
    assert not (tmp_path / "path/calls").exists()


def test_an_old_go_is_no_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path / "path/go", "go version go1.19.8 linux/amd64")
    asked: list[Path] = []

    def install(folder: Path) -> None:
        asked.append(folder)
        _go(folder / "root/go/bin")

    monkeypatch.setattr(building, "_install_from_python_index", install)
    found = binaries.ensure(["kubectl"], "1.35.4", environ=_environ(tmp_path))
    assert asked == [tmp_path / "cache/go"]
    assert found["kubectl"].read_text() == "built\n"


def test_an_unknown_program_is_refused() -> None:
    with pytest.raises(errors.Invalid, match="there is no program 'kubeclt'") as caught:
        binaries.ensure(["kubeclt"])
    assert "kubectl" in caught.value.hint


def test_every_staged_module_is_replaced_by_its_published_twin() -> None:
    go_mod = (
        "module k8s.io/kubernetes\n\ngo 1.25.0\n\ngodebug default=go1.25\n\nrequire (\n"
        "\tk8s.io/api v0.0.0\n\tk8s.io/client-go v0.0.0 // indirect\n\tk8s.io/klog/v2 v2.130.1\n)\n"
    )
    text = building.kubernetes_module(go_mod, "v1.35.4")
    assert "require k8s.io/kubernetes v1.35.4" in text
    assert "\tk8s.io/api => k8s.io/api v0.35.4\n\tk8s.io/client-go => k8s.io/client-go v0.35.4\n" in text
    assert "klog" not in text
    assert "go 1.25.0" in text and "godebug default=go1.25" in text


def test_a_go_mod_without_staged_modules_is_not_trusted() -> None:
    with pytest.raises(errors.Terminal, match="does not look as expected"):
        building.kubernetes_module("module k8s.io/kubernetes\n\ngo 1.25.0\n", "v1.35.4")


def test_kubernetes_programs_are_told_their_version_and_others_are_not() -> None:
    source = building.Source("kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet", "", "v1.34.4")
    flags = building.linker_flags(source)
    assert "-X k8s.io/component-base/version.gitVersion=v1.34.4" in flags
    assert "-X k8s.io/client-go/pkg/version.gitMinor=34" in flags
    assert building.linker_flags(building.Source("etcd", "etcd", "p", "m", "v3.6.6")) == "-s -w"


def test_what_is_cached_is_found_without_running_anything(tmp_path: Path) -> None:
    environ = _environ(tmp_path)
    assert binaries.cached("kubectl", "1.35", environ=environ) is None
    path = _program(tmp_path / "cache/kubernetes/v1.35.4/bin/kubectl", "")
    assert binaries.cached("kubectl", "1.35", environ=environ) == path
    os.chmod(path, 0o644)
    assert binaries.cached("kubectl", "1.35", environ=environ) is None


def test_modules_come_with_their_hashes(tmp_path: Path) -> None:
    """Every product whose version is fixed has a file of hashes, which is in place before Go first looks."""
    go = _go(tmp_path / "path")
    # A module that is built in a copy of itself has its own hashes.
    others = [each.name for each in binaries._OTHERS if not (each.additions or each.needs_own_module)]
    binaries.ensure(["kubectl", *others], environ=_environ(tmp_path))
    assert go.exists()
    for folder in (tmp_path / "cache" / "build").iterdir():
        shipped = building._SUMS / f"{folder.name}.sum"
        assert (folder / "go.sum").read_text() == shipped.read_text()
        assert all(len(line.split()) == 3 and " h1:" in line for line in shipped.read_text().splitlines())


def test_go_is_installed_with_its_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    needs: list[str] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if "-r" in command:
            needs.append(Path(command[-1]).read_text())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    building._install_from_python_index(tmp_path / "go")
    assert "--require-hashes" in commands[1]
    assert needs[0].split()[0] == building._GO_PACKAGE
    assert len([word for word in needs[0].split() if word.startswith("--hash=sha256:")]) == 2
    assert not (tmp_path / "go" / "requirements.txt").exists()
