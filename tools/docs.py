"""Writes docs/reference/ and docs/pictures/ from the code: commands, flags, errors, metrics, variables, views.

    python tools/docs.py            write the pages
    python tools/docs.py --check    write nothing; fail and name the pages that are not up to date

In: the click commands, the error classes, the metric classes and a running API server, the text of the sources. Out:
Markdown. Nobody edits these pages by hand; a test runs the check.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import io
import os
import pkgutil
import re
import ssl
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import click
import headpages
import msgspec
import setuppages
from eventpages import events_page
from pagetext import NOTE, options, table, wrapped
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.text import Text

import bedplate
from bedplate.apps.bedplate import root
from bedplate.cli.ipam import build_views
from bedplate.cli.ipam import picture as pool_picture
from bedplate.cloud.manager import options as manager_options
from bedplate.cloud.manager.validation import GATES
from bedplate.core import errors, logging
from bedplate.core import flags as manager_flags
from bedplate.ipam import addresses, pools
from bedplate.ipam.controller import options as ipam_controller
from bedplate.ipam.node import metrics as ipam_metrics
from bedplate.ipam.node import options as ipam_node
from bedplate.ipam.node.reservations import Usage
from bedplate.operators.permissions import crds as permission_kinds
from bedplate.operators.permissions import options as permission_options

ROOT = Path(__file__).resolve().parent.parent
# What each variable is for. The code says where it is read; a variable that is missing here stops the generator.
VARIABLES = {
    "BEDPLATE_CACERT": "File of the authority that signed the head's certificate; `--cacert` takes precedence.",
    "BEDPLATE_CACHE": "Folder for built Kubernetes programs. Default: `bedplate` in the user's cache folder.",
    "BEDPLATE_CERT": "File of the client certificate of `cmsh`; `--cert` takes precedence.",
    "BEDPLATE_DATA": "Data folder of a head, for `cmsh` and `bedplate head`; `--data` takes precedence.",
    "BEDPLATE_KEY": "File of that certificate's key; `--key` takes precedence.",
    "BEDPLATE_NO_BUILD": "`1`: build and download no Kubernetes program; a command that lacks one fails and names it.",
    "BEDPLATE_LAB": "Which lab the commands of `bedplate lab` act on; `--name` takes precedence.",
    "BEDPLATE_ROOT": "Set by the node agent for the services of a sandbox: the folder that counts as `/` for them.",
    "BEDPLATE_SERVICE": "Set by the node agent for services that it supervises: the folder of the service's keeper.",
    "BEDPLATE_PEERS": "Folder with the original programs; benchmarks and compatibility tests use them if they exist.",
    "BEDPLATE_OPENAPI": "Folder with the vendors' OpenAPI documents, against which tests check every request and "
    "response. Default: `../shared/openapi` if it exists.",
    "BEDPLATE_RECORD": "`1`: tests that use a real API server record its responses for the tests that run without one.",
    "BEDPLATE_REPORTS": "Folder for what `make test` and `make verify` report (skips, failures, durations). "
    "Default: `build/reports`.",
    "BEDPLATE_TEST_REPORT": "File in which one pytest run notes what it skipped and what failed; set by `make test`.",
    "BEDPLATE_TEST_SEED": "Seed of the random numbers of tests, as a failed test printed it.",
    "BEDPLATE_TOKEN_FILE": "File with the bearer token that `cmsh` sends; `--token-file` takes precedence.",
    "BEDPLATE_URL": "URLs of heads for `cmsh`, separated by spaces or commas; `--url` takes precedence.",
    "BEDPLATE_TEST_PATIENCE": "Seconds a test waits for what must come; fewer to see failures sooner. Default: 120.",
    "KUBEBUILDER_ASSETS": "Folder with Kubernetes programs to use instead of built ones, if their version matches.",
    "KUBECONFIG": "Kubeconfig files of the cluster, as for kubectl: one or several, separated by colons.",
    "KUBERNETES_SERVICE_HOST": "Set inside a pod; with the mounted service account it is the cluster to use.",
    "NVIDIA_BMM_ENDPOINT": "Address of the BMM API; overrides `endpoint` of the cloud configuration. Every other key "
    "has a variable of that form too: `NVIDIA_BMM_` and the key in capitals, words separated by underscores.",
    "NVIDIA_BMM_ORG_NAME": "Organisation in BMM; overrides `orgName`.",
    "NVIDIA_BMM_SITE_ID": "Site of the cluster; overrides `siteId`.",
    "NVIDIA_BMM_TENANT_ID": "Tenant of the cluster; overrides `tenantId`.",
    "NVIDIA_BMM_TOKEN": "Token of the BMM API; overrides `token`.",
    "OXIDE_HOST": "Address of the Oxide API; overrides `host` of the cloud configuration.",
    "OXIDE_PROFILE": "Profile of the Oxide CLI (`~/.config/oxide/credentials.toml`) with host and token; "
    "overrides `OXIDE_HOST` and `OXIDE_TOKEN`.",
    "OXIDE_PROJECT": "Project of the cluster's instances; overrides `project`.",
    "OXIDE_TOKEN": "Token of the Oxide API; overrides `token`.",
    "OXIDE_TOKEN_FILE": "File with that token, reloaded when it changes.",
    "HTTPS_PROXY": "Proxy for requests to the API server; a kubeconfig's `proxy-url` takes precedence.",
    "NO_COLOR": "If set, no colours in tables and log lines, even on a terminal.",
    "NO_PROXY": "Hosts, domains, addresses and networks that are reached without a proxy.",
    "XDG_CACHE_HOME": "The user's cache folder. Default: `~/.cache`.",
    "XDG_STATE_HOME": "Where labs keep their state. Default: `~/.local/state`.",
}


# Commands


def commands(command: click.Command, ctx: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """A command and all below it, in the order of `--help`."""
    yield command, ctx
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            assert child is not None
            yield from commands(child, click.Context(child, info_name=name, parent=ctx))


def cli_page() -> str:
    parts = [f"{NOTE}\n# Commands\n\nEvery command takes `--help`. `bedplate` alone takes the options below first.\n"]
    for command, ctx in commands(root, click.Context(root, info_name="bedplate")):
        parts.append(f"## `{ctx.command_path}`\n")
        parts.append(inspect.cleandoc(command.help or "") + "\n")
        if not isinstance(command, click.Group):
            parts.append(f"```\n{' '.join([ctx.command_path, *command.collect_usage_pieces(ctx)])}\n```\n")
        if rows := options(command, ctx):
            parts.append(table(("option", "default", "meaning"), rows))
        epilog = inspect.cleandoc(command.epilog or "").replace("\b\n", "")
        if epilog:
            shown_examples = re.sub(r"(?m)^  ", "", re.sub(r"^Examples?:\s+", "", epilog))
            parts.append(f"```\n{shown_examples}\n```\n")
    return "\n".join(parts)


# Flags of the programs


def flag_tables(groups: Iterable[Any], base: Any, level: str = "##") -> Iterator[str]:
    """A section for each group of flags."""
    for group in groups:
        rows = []
        for flag in manager_flags.flags_of(group.kind):
            default = manager_flags.render(flag, getattr(getattr(base, group.field), flag.field))
            name = f"`--{flag.name}`" + (f", `-{flag.short}`" if flag.short and len(flag.name) > 1 else "")
            text = flag.help + (f" Deprecated: {flag.deprecated}." if flag.deprecated else "")
            rows.append((name, "" if default in ("", "false") else f"`{default}`", text))
        yield f"{level} {group.title}\n"
        yield table(("flag", "default", "meaning"), rows)


def ipam_flags_page() -> str:
    grammar = (
        "in the syntax of Kubernetes programs: `--a b`, `--a=b`, booleans `--a` or `--a=false`, "
        "durations `1h30m`, lists separated by commas"
    )
    return "\n".join(
        [
            f"{NOTE}\n# Flags of address management\n\n"
            f"`ipam-controller` and `ipam-node` take the original's flags, and some additional ones, {grammar}. "
            "`bedplate ipam controller` and `bedplate ipam node` are the same programs. "
            "Each prints this as `--help`.\n",
            "## `ipam-controller`\n",
            *flag_tables(ipam_controller.GROUPS, ipam_controller.Options(), "###"),
            "## `ipam-node`\n",
            *flag_tables(ipam_node.GROUPS, ipam_node.Options(), "###"),
        ]
    )


def permissions_page() -> str:
    """The custom kinds, from their definitions, and the flags of the manager."""
    parts = [
        f"{NOTE}\n# The permission manager\n\n"
        "Custom resources of the group `charts.brightcomputing.com/v1alpha1`, in the namespace `cm-permissions`. What "
        "they become and which rules follow is in [the guide](../guides/people.md).\n"
    ]
    for definition in permission_kinds.definitions():
        (version,) = definition["spec"]["versions"]
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        rows = [
            (f"`{name}`", _type_of(field), _shown(field.get("default", "required")), field["description"])
            for name, field in spec["properties"].items()
        ]
        names = definition["spec"]["names"]
        parts += [f"## `{names['kind']}` (`{names['plural']}`)\n", table(("field", "type", "default", "meaning"), rows)]
    parts += [
        "## Status\n\nThe condition `Ready` is `True` (reason `Made`), or `False` with a message; `objects` lists what "
        "was made.\n",
        "## Flags of `permissions-manager`\n",
        *flag_tables(permission_options.GROUPS, permission_options.Options(), "###"),
    ]
    return "\n".join(parts)


def _type_of(field: dict[str, Any]) -> str:
    kind = f"list of {field['items']['type']}s" if field["type"] == "array" else field["type"]
    return f"{kind}: {', '.join(f'`{each}`' for each in field['enum'])}" if "enum" in field else kind


def _shown(default: Any) -> str:
    return default if default == "required" else f"`{msgspec.json.encode(default).decode()}`"


def flags_page() -> str:
    parts = [
        f"{NOTE}\n# Flags of the cloud controller manager\n\n"
        "`nvidia-bmm-cloud-controller-manager`, `oxide-cloud-controller-manager`, "
        "`cloudlycke-cloud-controller-manager` and `bedplate ccm run` take the same flags, in the syntax of "
        "Kubernetes programs: `--a b`, `--a=b`, booleans `--a` or `--a=false`, durations `1h30m`, lists separated by "
        "commas; underscores count as dashes. A program named after a cloud uses it if `--cloud-provider` is not "
        "given. `bedplate ccm explain` takes them too.\n"
    ]
    parts += flag_tables(manager_options.GROUPS, manager_options.Options())
    gates = [(f"`{name}`", text) for name, text in GATES.items()]
    parts += ["## Feature gates\n\nAccepted; the behaviour of each is fixed.\n", table(("gate", "here"), gates)]
    return "\n".join(parts)


# Errors


def modules() -> list[Any]:
    names = [each.name for each in pkgutil.walk_packages(bedplate.__path__, "bedplate.")]
    # A library that is loaded by name looks like a module and is not one.
    others = ("__main__", ".libstoresum")
    return [importlib.import_module(name) for name in sorted(names) if not name.endswith(others)]


def errors_page() -> str:
    everything = modules()
    tree = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, errors.BedplateError)]
    codes = [("`0`", "success; also after Ctrl-C of a program that runs until stopped")]
    codes += [("`2`", "the command line is wrong"), ("`130`", "a command was interrupted before it was done")]
    codes += [("`141`", "the reader of the output closed the pipe")]
    rows = [
        (f"`{each.__name__}`", f"`{each.__bases__[0].__name__}`", f"`{each.exit_code}`", text_of(each)) for each in tree
    ]
    special = sorted(
        {
            (each.__module__, each.__name__): each
            for module in everything
            for _, each in inspect.getmembers(module, inspect.isclass)
            if issubclass(each, errors.BedplateError) and each not in tree
        }.items()
    )
    more = [
        (f"`{module.removeprefix('bedplate.')}.{name}`", nearest(each, tree), f"`{each.exit_code}`", text_of(each))
        for (module, name), each in special
    ]
    return (
        f"{NOTE}\n# Errors and exit codes\n\n"
        "An error is shown as one message, its causes, and what to do next (`next: …`); `-v 4` adds the traceback.\n\n"
        "## The tree\n\n" + table(("error", "is a", "exit code", "meaning"), rows) + "\n## Other exit codes\n\n"
        "`lab kubectl`, `lab exec` and `kubectl` exit with the code of the program they run.\n\n"
        + table(("exit code", "meaning"), codes)
        + "\n## Special errors\n\n"
        + table(("error", "is a", "exit code", "meaning"), more)
    )


def nearest(each: type, tree: list[type]) -> str:
    """The branches of the tree that a special error belongs to."""
    among = [parent for parent in each.__mro__ if parent in tree]
    return f"`{among[0].__name__}`"


def text_of(each: type) -> str:
    return (inspect.cleandoc(each.__doc__ or "")).split("\n\n")[0].replace("\n", " ")


# Metrics


def metrics_page() -> str:
    rows = []
    for module in modules():
        for name, each in inspect.getmembers(module, inspect.isclass):
            if name.endswith("Metrics") and each.__module__ == module.__name__:
                registry = CollectorRegistry()
                cast(Any, each)(registry)
                rows += [(*row, module.__name__.split(".")[1]) for row in registered(registry)]
    rows += [(*row, "ipam") for row in daemon_state()]
    titles = ("metric", "type", "labels", "meaning")
    return (
        f"{NOTE}\n# Metrics\n\n"
        "Names are those of client-go and controller-runtime, so that existing dashboards work.\n\n"
        "## Programs with controllers: `/metrics` of `serving`\n\n"
        + table((*titles, "from"), sorted(rows))
        + "\n## The embedded API server: `/metrics`\n\n"
        + table(titles, sorted(asyncio.run(served())))
    )


def daemon_state() -> Iterator[tuple[str, str, str, str]]:
    """What a node daemon shows of itself, read with every scrape."""
    seen = ipam_metrics.Snapshot({"p": Usage(1, 2, 1)}, {"q": "wrong"}, is_ready=True)
    for family in ipam_metrics.StateCollector(CollectorRegistry(), lambda: seen).collect():
        labels = ", ".join(f"`{label}`" for label in family.samples[0].labels)
        yield f"`{family.name}`", family.type, labels, family.documentation


def registered(registry: CollectorRegistry) -> Iterator[tuple[str, str, str, str]]:
    for collector in registry._collector_to_names:
        for family in collector.collect():
            own: tuple[str, ...] = getattr(collector, "_labelnames", ())
            labels = ", ".join(f"`{label}`" for label in getattr(collector, "label_names", own))
            total = "_total" if family.type == "counter" else ""
            yield f"`{family.name}{total}`", family.type, labels, family.documentation


async def served() -> list[tuple[str, str, str, str]]:
    """The metrics of an API server that has answered one request."""
    import yaml

    from bedplate.apiserver import server

    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        async with server.ApiServer(
            server.Options(Path(folder) / "data", port=0, kubeconfig_out=kubeconfig)
        ) as running:
            config = yaml.safe_load(kubeconfig.read_text())

            def ask(path: str) -> str:
                return fetch(running.url + path, config, Path(folder))

            await asyncio.to_thread(ask, "/api/v1/namespaces")
            text = await asyncio.to_thread(ask, "/metrics")
    rows = []
    for family in text_string_to_metric_families(text):
        total = "_total" if family.type == "counter" else ""
        labels = ", ".join(f"`{label}`" for label in sorted(family.samples[0].labels))
        rows.append((f"`{family.name}{total}`", family.type, labels, family.documentation))
    return rows


def fetch(url: str, config: Any, folder: Path) -> str:
    import base64

    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    pair = folder / "client.pem"
    pair.write_bytes(b"".join(base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")))
    context.load_cert_chain(pair)
    with urllib.request.urlopen(url, context=context, timeout=30) as answer:
        return str(answer.read().decode())


# Environment


def environment_page() -> str:
    places: dict[str, list[str]] = {name: [] for name in VARIABLES}
    for folder in ("src", "tools", "bench", "tests"):
        for path in sorted(set((ROOT / folder).rglob("*.py")) - {Path(__file__).resolve()}):
            text, place = path.read_text(), str(path.relative_to(ROOT))
            # Tests make up variables of their own; what the product reads must be explained.
            read = set(re.findall(r"\b[A-Z_]{5,}\b", text))
            unknown = set(re.findall(r"[\"'](BEDPLATE_[A-Z_]+)[\"']", text)) - set(VARIABLES)
            if unknown and folder != "tests":
                sys.exit(f"docs: say what {', '.join(unknown)} is for in VARIABLES of tools/docs.py")
            for name in read & set(VARIABLES):
                places[name].append(place)
    rows = [
        (f"`{name}`", text, ", ".join(f"`{place}`" for place in shown(places[name])))
        for name, text in VARIABLES.items()
    ]
    return (
        f"{NOTE}\n# Environment variables\n\n"
        "Programs read the environment at their entry point only; inner code receives values.\n\n"
        + table(("variable", "meaning", "where"), rows)
    )


def shown(places: list[str]) -> list[str]:
    """Where the product names a variable; the tests only where nothing else does."""
    return [place for place in places if not place.startswith("tests/")] or places


# Picture


def pool_map() -> str:
    """The picture of a pool, as `bedplate ipam map` draws it: some blocks full, some empty, some that cannot be
    allocated."""
    size, base = 24, 0xC0A80001
    entries = [
        {
            "nodeName": f"host-{number:02}",
            "startIP": addresses.text(32, base + size * number),
            "endIP": addresses.text(32, base + size * number + size - 1),
        }
        for number in range(44)
        if number % 11 != 7
    ]
    spec = {
        "subnet": "192.168.0.0/16",
        "perNodeBlockSize": size,
        "gateway": "192.168.0.1",
        "exclusions": [{"startIP": "192.168.5.0", "endIP": "192.168.5.255"}],
    }
    body = {"metadata": {"name": "pool1", "namespace": "kube-system"}, "spec": spec}
    pool = msgspec.convert({**body, "status": {"allocations": entries}}, pools.IPPool)
    used = [
        addresses.Address(32, base + size * number + place)
        for number in range(44)
        for place in range(1, 2 + (number * 7) % (size - 1))
    ]
    quarantined = {"192.168.0.169-192.168.0.192": ("host-07", None)}
    drawn = pool_picture.draw(build_views.view_of(pool, used=used, quarantined=quarantined), 100, most_nodes=6)
    console = Console(file=io.StringIO(), record=True, width=100)
    console.print(Text.from_ansi(drawn))
    return svg_of(console, "bedplate ipam map pool1", "pool")


def shell_session() -> str:
    """The shell on the demonstration's tree."""
    console = Console(file=io.StringIO(), record=True, width=126)
    headpages.draw_session(console)
    return svg_of(console, "cmsh", "cmsh")


def svg_of(console: Console, title: str, identifier: str) -> str:
    """What was printed, as a picture."""
    svg = console.export_svg(title=title, unique_id=identifier)
    # A picture in a repository asks no other host for its letters, and has no blanks at the ends of lines.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


PAGES = {
    "reference/cli.md": cli_page,
    "reference/manager-flags.md": flags_page,
    "reference/ipam-flags.md": ipam_flags_page,
    "reference/permissions.md": permissions_page,
    "reference/errors-and-exit-codes.md": errors_page,
    "reference/metrics.md": metrics_page,
    "reference/environment.md": environment_page,
    "reference/events.md": events_page,
    "reference/head-entities.md": headpages.entities_page,
    "reference/cmsh.md": headpages.cmsh_page,
    "reference/head-rest.md": headpages.rest_page,
    "reference/setup-flags.md": setuppages.flags_page,
    "reference/setup-answers.md": setuppages.answers_page,
    "../config/setup-answers.schema.json": setuppages.schema_file,
    "pictures/pool.svg": pool_map,
    "pictures/cmsh.svg": shell_session,
}


def main(arguments: list[str]) -> int:
    logging.configure(logging.LogOptions(), io.StringIO())
    # A notice is shown in the zone of the machine; a picture is the same everywhere.
    os.environ["TZ"] = "UTC"
    time.tzset()
    stale = []
    for name, make in PAGES.items():
        text, path = make(), (ROOT / "docs" / name).resolve()
        text = wrapped(text) if path.suffix == ".md" else text
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            print(f"docs: wrote {path.relative_to(ROOT)}")
    if stale and "--check" in arguments:
        print(f"docs: not up to date: {', '.join(stale)} (make docs)")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
