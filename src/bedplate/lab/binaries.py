"""Find or build the programs of a Kubernetes release.

In: program names and a version. Out: a path for each. A program is taken from the first of

1. `$KUBEBUILDER_ASSETS`, when that folder holds it in a fitting version;
2. the cache, `<cache>/<product>/<version>/bin`, the cache being `$BEDPLATE_CACHE` or `bedplate` in the user's cache
   folder;
3. `$PATH`, in a fitting version;
4. a build with Go from the module proxy, into the cache (`bedplate.lab.building`).

A version fits when it is the one asked for; asked for a minor (`1.35`), any patch release of it fits. Each program is
handled alone: a command that needs kubectl does not wait for a kubelet. Two processes never build the same thing: a
file lock per product and version makes the second wait, then find what the first has made."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bedplate.core import errors, folders
from bedplate.lab import building, versions

__all__ = [
    "CONTAINERD_PROGRAMS",
    "KUBERNETES_PROGRAMS",
    "PROGRAMS",
    "Program",
    "cache_folder",
    "cached",
    "ensure",
    "missing",
]

Progress = Callable[[str], None]

KUBERNETES_PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubeadm",
    "kubectl",
    "kube-proxy",
)
CONTAINERD_PROGRAMS = ("containerd", "containerd-shim-runc-v2")


@dataclass(frozen=True, slots=True)
class Program:
    """One program and where its source is. `module` and `version` are empty for those released with Kubernetes."""

    name: str
    product: str
    package: str
    module: str = ""
    version: str = ""
    additions: Mapping[str, str] = field(default_factory=dict)
    """Files that the module lacks, by path."""
    needs_own_module: bool = False
    """Whether it is built under the go.mod of its module: another module's replacements do not count."""

    def tag(self, kubernetes: str) -> str:
        """The exact version to use beside that Kubernetes release."""
        return self.version or kubernetes


_DISTRIBUTION = "github.com/distribution/distribution/v3"
_CONTAINERD = "github.com/containerd/containerd/v2"
_LOCAL_PATH = "github.com/rancher/local-path-provisioner"
_KYVERNO = "github.com/kyverno/kyverno"
_METRICS = "sigs.k8s.io/metrics-server"
_TRAEFIK = "github.com/traefik/traefik/v3"
# Its module does not have the web pages, which it would not be built without.
_TRAEFIK_ADDITIONS = {
    "webui/static/index.html": "<!doctype html><title>Traefik</title><p>Built without its dashboard.</p>\n"
}
_OTHERS = (
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3", versions.ETCD),
    Program("etcdctl", "etcd", "go.etcd.io/etcd/etcdctl/v3", "go.etcd.io/etcd/etcdctl/v3", versions.ETCD),
    Program("etcdutl", "etcd", "go.etcd.io/etcd/etcdutl/v3", "go.etcd.io/etcd/etcdutl/v3", versions.ETCD),
    Program("coredns", "coredns", "github.com/coredns/coredns", "github.com/coredns/coredns", versions.COREDNS),
    Program("helm", "helm", "helm.sh/helm/v3/cmd/helm", "helm.sh/helm/v3", versions.HELM),
    Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", "sigs.k8s.io/kwok", versions.KWOK),
    Program("registry", "distribution", f"{_DISTRIBUTION}/cmd/registry", _DISTRIBUTION, versions.REGISTRY),
    *(
        Program(name, "containerd", f"{_CONTAINERD}/cmd/{name}", _CONTAINERD, versions.CONTAINERD)
        for name in CONTAINERD_PROGRAMS
    ),
    Program("metrics-server", "metrics-server", f"{_METRICS}/cmd/metrics-server", _METRICS, versions.METRICS_SERVER),
    Program("local-path-provisioner", "local-path-provisioner", _LOCAL_PATH, _LOCAL_PATH, versions.LOCAL_PATH),
    Program("traefik", "traefik", f"{_TRAEFIK}/cmd/traefik", _TRAEFIK, versions.TRAEFIK, _TRAEFIK_ADDITIONS),
    # Its admission controller. Too large to build for every set-up: tests with the mark `soak` run it.
    Program("kyverno", "kyverno", f"{_KYVERNO}/cmd/kyverno", _KYVERNO, versions.KYVERNO, needs_own_module=True),
)
PROGRAMS: Mapping[str, Program] = {
    program.name: program
    for program in (*(Program(n, "kubernetes", f"k8s.io/kubernetes/cmd/{n}") for n in KUBERNETES_PROGRAMS), *_OTHERS)
}

# How each program is asked for its version; the answer is searched for `1.2.3`.
_VERSION_ARGS = {
    "kubectl": ("version", "--client"),
    "kubeadm": ("version", "-o", "short"),
    "helm": ("version", "--short"),
    "coredns": ("-version",),
    "etcdctl": ("version",),
    "traefik": ("version",),
    "etcdutl": ("version",),
}


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """`$BEDPLATE_CACHE`, or `bedplate` in the user's cache folder. Raises `Invalid` where root cannot trust it."""
    environ = os.environ if environ is None else environ
    if environ.get("BEDPLATE_CACHE"):
        folder = Path(environ["BEDPLATE_CACHE"]).expanduser().absolute()
    else:
        folder = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "bedplate"
    folders.check_trusted(folder, "BEDPLATE_CACHE names another cache folder")
    return folder


def cached(name: str, version: str = versions.DEFAULT, *, environ: Mapping[str, str] | None = None) -> Path | None:
    """The program if the cache or `$KUBEBUILDER_ASSETS` has it; nothing is built and `$PATH` is not searched."""
    environ = os.environ if environ is None else environ
    program = _known(name)
    return _given(program, version, environ, lambda _line: None) or _in_cache(program, version, cache_folder(environ))


def missing(
    programs: Iterable[str], version: str = versions.DEFAULT, *, environ: Mapping[str, str] | None = None
) -> list[str]:
    """Those that the cache does not have in exactly that version, which is what `only_exact` of `ensure` takes."""
    cache = cache_folder(environ)
    return [name for name in dict.fromkeys(programs) if _in_cache(_known(name), version, cache) is None]


def ensure(
    programs: Iterable[str],
    version: str = versions.DEFAULT,
    *,
    progress: Progress | None = None,
    environ: Mapping[str, str] | None = None,
    only_exact: bool = False,
) -> dict[str, Path]:
    """A path for every program named, building what is found nowhere, unless `$BEDPLATE_NO_BUILD` forbids it.

    `only_exact` ignores `$KUBEBUILDER_ASSETS` and `$PATH`: for images, where every part must be the tag it is called.
    """
    environ = dict(os.environ if environ is None else environ)
    report = progress or (lambda _line: None)
    cache = cache_folder(environ)
    known = [_known(name) for name in dict.fromkeys(programs)]
    paths: dict[str, Path] = {}
    for program in known:
        path = None if only_exact else _given(program, version, environ, report)
        path = path or _in_cache(program, version, cache)
        if path is None and not only_exact:
            path = _on_path(program, version, environ)
        if path is not None:
            paths[program.name] = path
    missing = [program for program in known if program.name not in paths]
    if missing and environ.get("BEDPLATE_NO_BUILD"):
        names = ", ".join(program.name for program in missing)
        raise errors.Invalid(
            f"{names}: not in {cache}, and BEDPLATE_NO_BUILD forbids building it",
            hint="unset the variable, or point BEDPLATE_CACHE at a folder that has it",
        )
    if missing:
        paths |= _build(missing, versions.resolve(version), cache, environ, report)
    return {program.name: paths[program.name] for program in known}


def _build(
    missing: list[Program], kubernetes: str, cache: Path, environ: dict[str, str], report: Progress
) -> dict[str, Path]:
    builder = building.Builder(cache, environ, report)
    built: dict[str, Path] = {}
    for number, program in enumerate(missing, start=1):
        rest = ", ".join(other.name for other in missing[number:])
        source = building.Source(
            name=program.name,
            product=program.product,
            package=program.package,
            module=program.module,
            tag=program.tag(kubernetes),
            additions=program.additions,
            needs_own_module=program.needs_own_module,
        )
        built[program.name] = builder.build(source, f"{number}/{len(missing)}" + (f", then {rest}" if rest else ""))
    return built


def _known(name: str) -> Program:
    if name not in PROGRAMS:
        raise errors.Invalid(f"there is no program {name!r}", hint=f"known: {', '.join(PROGRAMS)}")
    return PROGRAMS[name]


def _in_cache(program: Program, version: str, cache: Path) -> Path | None:
    path = cache / program.product / program.tag(versions.resolve(version)) / "bin" / program.name
    return path if os.access(path, os.X_OK) else None


def _given(program: Program, version: str, environ: Mapping[str, str], report: Progress) -> Path | None:
    folder = environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        return None
    path = Path(folder).absolute() / program.name
    if not os.access(path, os.X_OK):
        return None
    has = _version_of(program, path)
    if _fits(program, version, has):
        return path
    report(f"{path} is {has or 'of unknown version'}, not {version}: ignored")
    return None


def _on_path(program: Program, version: str, environ: Mapping[str, str]) -> Path | None:
    where = shutil.which(program.name, path=environ.get("PATH", os.defpath))
    if where is None:
        return None
    path = Path(where).absolute()
    return path if _fits(program, version, _version_of(program, path)) else None


def _fits(program: Program, asked: str, has: str) -> bool:
    if not has:
        return False
    if program.version:
        # etcd 3.4 serves every supported kube-apiserver; the other companions are used only in the version we know.
        is_able_etcd = program.product == "etcd" and tuple(map(int, has.split("."))) >= (3, 4, 0)
        return is_able_etcd or f"v{has}" == program.version
    asked = asked.strip().removeprefix("v")
    return has == asked if asked.count(".") == 2 else versions.minor(has) == asked


def _version_of(program: Program, path: Path) -> str:
    command = [str(path), *_VERSION_ARGS.get(program.name, ("--version",))]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r"\bv?(\d+\.\d+\.\d+)\b", answer.stdout + answer.stderr)
    return match[1] if match else ""
