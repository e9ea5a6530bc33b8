"""`bedplate lab facts`: read the facts of one Kubernetes version from a real API server and from its Go types.

Comes in: a version. Goes out: the tables that the embedded API server ships (`v1.35.json.gz`, and the objects of a
fresh cluster, `bootstrap-v1.35.json.gz`), and, in the cache folder, the server's full OpenAPI documents, whose texts
`kubectl explain` then shows. A control plane is started for the purpose and stopped again; a small Go program is built
against the same version. What is kept of it all is decided in `factgen.reduce`.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import importlib.resources
import os
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import click
import msgspec

from bedplate.core import errors
from bedplate.lab import binaries, building, controlplane, processes, versions
from bedplate.lab.factgen import reduce

__all__ = ["facts", "generate", "texts_folder"]

_TIMEOUT = aiohttp.ClientTimeout(total=60)
_PROBES_AT_ONCE = 8
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
# Fields that can be selected although no field of that name exists.
_ODD_SELECTORS = ("status.successful", "source")
_SCHEMAS = "#/components/schemas/"


def texts_folder(cache: Path, minor: str) -> Path:
    """Where the full OpenAPI documents of a version are kept."""
    return cache / "openapi" / f"v{minor}"


async def generate(
    version: str, out: Path, *, samples: Path | None = None, progress: Callable[[str], None] = lambda _line: None
) -> Path:
    """Write the tables of a version into the folder `out`; with `samples`, pairs for tests of defaulting there."""
    tag = versions.resolve(version)
    minor = versions.minor(tag)
    cache = binaries.cache_folder()
    program = await asyncio.to_thread(_build_program, cache, tag, progress)
    progress(f"reading the Go types of {tag}")
    go_facts = msgspec.json.decode(await processes.run([str(program)], "read the Go types"))
    async with controlplane.ControlPlane(tag, progress=progress) as plane, _server(plane) as server:
        progress("reading discovery, OpenAPI and tables")
        gathered = await _gather(server)
        progress("probing field selectors")
        gathered.selectable = await _probe_selectors(server, gathered)
        pages = {path: await server.get(path) for path in reduce.BOOTSTRAP_PATHS}
    gathered.go = go_facts
    target = out / f"v{minor}.json.gz"
    _write(target, reduce.encode(reduce.reduce(gathered)))
    _write(out / f"bootstrap-v{minor}.json.gz", reduce.encode(reduce.bootstrap(pages)))
    for path, document in gathered.openapi.items():
        file = texts_folder(cache, minor) / (path.replace("/", "_") + ".json.gz")
        _write(file, gzip.compress(msgspec.json.encode(document), mtime=0))
    if samples is not None:
        text = await processes.run([str(program), "samples"], "make samples of defaulting")
        _write(samples / f"defaults-v{minor}.jsonl.gz", gzip.compress(text.encode(), mtime=0))
    return target


def _write(target: Path, content: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    part.write_bytes(content)
    part.rename(target)


class _ProgramBuilder(building.Builder):
    """Builds our own program inside the module that pins a Kubernetes version."""

    def __init__(self, cache: Path, report: Callable[[str], None], files: Mapping[str, str]) -> None:
        super().__init__(cache, dict(os.environ), report)
        self._files = files

    def _module_folder(self, go: str, source: building.Source) -> Path:
        folder = super()._module_folder(go, source)
        for name, text in self._files.items():
            (folder / name).write_text(text)
        return folder


def _build_program(cache: Path, tag: str, report: Callable[[str], None]) -> Path:
    folder = importlib.resources.files(reduce.__package__ or "") / "program"
    files = {entry.name: entry.read_text() for entry in folder.iterdir() if entry.name.endswith(".go")}
    # The name carries a hash of the sources: a changed program is another program.
    digest = hashlib.sha256("".join(files[name] for name in sorted(files)).encode()).hexdigest()[:12]
    source = building.Source(name=f"factgen-{digest}", product="factgen", package=".", module="", tag=tag)
    return _ProgramBuilder(cache, report, files).build(source)


class _Server:
    """Plain reads from the control plane."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def get(self, path: str, accept: str = "application/json") -> Any:
        async with self._session.get(self._url + path, headers={"Accept": accept}) as answer:
            if answer.status != 200:
                raise errors.Unavailable(f"GET {path} was answered with {answer.status}")
            return msgspec.json.decode(await answer.read())

    async def allows(self, path: str) -> bool:
        async with self._session.get(self._url + path) as answer:
            return answer.status == 200


@asynccontextmanager
async def _server(plane: controlplane.ControlPlane) -> AsyncIterator[_Server]:
    context = ssl.create_default_context(cafile=str(plane.ca))
    context.load_cert_chain(plane.pki / "admin.crt", plane.pki / "admin.key")
    connector = aiohttp.TCPConnector(ssl=context, limit=_PROBES_AT_ONCE)
    async with aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as session:
        yield _Server(session, plane.url)


async def _gather(server: _Server) -> reduce.Gathered:
    gathered = reduce.Gathered(kubernetes=await server.get("/version"))
    # Facts of the machine the server was built on are not facts of the version.
    for key in ("gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"):
        gathered.kubernetes.pop(key, None)
    for path in ("/api", "/apis"):
        gathered.groups += (await server.get(path, _AGGREGATED))["items"]
    for path, entry in (await server.get("/openapi/v3"))["paths"].items():
        if _is_versioned(path):
            gathered.openapi[path] = await server.get(entry["serverRelativeURL"])
    for key, path, _ in _listed(gathered.groups):
        table = await server.get(f"{path}?limit=1", _TABLE)
        gathered.columns[key] = table["columnDefinitions"]
    return gathered


def _is_versioned(path: str) -> bool:
    """api/v1 and apis/G/V, not the lists of groups and versions beside them."""
    parts = path.split("/")
    return (parts[0], len(parts)) in (("api", 2), ("apis", 3))


def _listed(groups: list[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """`group/version/resource`, path of the list and kind of every resource that can be listed."""
    for group in groups:
        name = group["metadata"].get("name", "")
        for version in group["versions"]:
            prefix = f"/apis/{name}/{version['version']}" if name else f"/api/{version['version']}"
            for resource in version["resources"]:
                if "list" in resource["verbs"]:
                    key = f"{name}/{version['version']}/{resource['resource']}"
                    yield key, f"{prefix}/{resource['resource']}", resource["responseKind"]["kind"]


async def _probe_selectors(server: _Server, gathered: reduce.Gathered) -> dict[str, list[str]]:
    """Which fields a list can be narrowed by: the server refuses a selector on any other."""
    selectors: dict[str, list[str]] = {}
    for key, path, kind in _listed(gathered.groups):
        document = gathered.openapi[path.strip("/").rpartition("/")[0]]
        schemas = document["components"]["schemas"]
        root = next((name for name, schema in schemas.items() if _is_kind(schema, key, kind)), None)
        wishes = sorted({*_scalar_paths(schemas, root), *_ODD_SELECTORS}) if root else []
        answers = await asyncio.gather(*(server.allows(f"{path}?limit=1&fieldSelector={wish}%3Dx") for wish in wishes))
        selectors[key] = [wish for wish, is_allowed in zip(wishes, answers, strict=True) if is_allowed]
    return selectors


def _is_kind(schema: Mapping[str, Any], key: str, kind: str) -> bool:
    group, version, _ = key.split("/")
    return {"group": group, "version": version, "kind": kind} in schema.get("x-kubernetes-group-version-kind", ())


def _scalar_paths(schemas: Mapping[str, Any], name: str, prefix: str = "", depth: int = 3) -> Iterator[str]:
    for field, schema in schemas[name].get("properties", {}).items():
        inner = [*schema.get("allOf", ()), schema]
        reference = next((part["$ref"] for part in inner if "$ref" in part), "").removeprefix(_SCHEMAS)
        if reference and depth > 1 and field != "metadata":
            yield from _scalar_paths(schemas, reference, f"{prefix}{field}.", depth - 1)
        elif schema.get("type") in ("string", "integer", "boolean") and not (
            prefix == "" and field in ("kind", "apiVersion")
        ):
            yield prefix + field


@click.command(
    "facts", epilog="Example: bedplate lab facts --kubernetes 1.35 --out facts --samples tests/apiserver/data"
)
@click.option("--kubernetes", "version", default=versions.DEFAULT, show_default=True, help="Version to read.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("."),
    show_default=True,
    help="Folder for the table.",
)
@click.option("--samples", type=click.Path(file_okay=False, path_type=Path), help="Folder for samples of defaulting.")
def facts(version: str, out: Path, samples: Path | None) -> None:
    """Read the facts the embedded API server runs on from a real API server."""
    target = asyncio.run(generate(version, out, samples=samples, progress=lambda line: click.echo(line, err=True)))
    click.echo(f"{target}: {target.stat().st_size} bytes")
