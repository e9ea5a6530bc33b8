"""Which controllers and which clouds were asked for.

In: the lists of `--controllers`, `--cloud-provider` and `--cloud-config`. Out: names, files by provider, and problems.
Pure: it opens no file.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "ALIASES",
    "CONTROLLERS",
    "LIFECYCLE",
    "NODE",
    "ROUTE",
    "SERVICE",
    "CloudChoice",
    "choose_clouds",
    "enabled_controllers",
]

NODE = "cloud-node-controller"
LIFECYCLE = "cloud-node-lifecycle-controller"
SERVICE = "service-lb-controller"
ROUTE = "node-route-controller"
CONTROLLERS = (NODE, LIFECYCLE, SERVICE, ROUTE)
ALIASES = {"cloud-node": NODE, "cloud-node-lifecycle": LIFECYCLE, "service": SERVICE, "route": ROUTE}


def enabled_controllers(words: Sequence[str]) -> tuple[frozenset[str], list[str]]:
    """The controllers to run, and what is wrong with the list. A name decides over `*`, wherever it stands."""
    problems: list[str] = []
    verdicts: dict[str, bool] = {}
    has_all = False
    for word in words:
        if word == "*":
            has_all = True
            continue
        name = ALIASES.get(word.removeprefix("-"), word.removeprefix("-"))
        if name not in CONTROLLERS:
            known = ", ".join(CONTROLLERS)
            problems.append(f"--controllers: {word.removeprefix('-')!r} is not a controller (known: {known})")
            continue
        # As in Kubernetes, the first mention of a name counts.
        verdicts.setdefault(name, not word.startswith("-"))
    return frozenset(name for name in CONTROLLERS if verdicts.get(name, has_all)), problems


@dataclass(frozen=True, slots=True)
class CloudChoice:
    """One provider and its configuration file, if one was given."""

    name: str
    config: Path | None = None


def choose_clouds(
    providers: Sequence[str], configs: Sequence[str], known: Collection[str]
) -> tuple[tuple[CloudChoice, ...], list[str]]:
    """The providers in the order given, each with its file, and what is wrong with the two lists."""
    problems = _provider_problems(providers, known)
    files: dict[str, Path] = {}
    bare: list[str] = []
    for text in configs:
        name, equals, path = text.partition("=")
        # A path may hold an equals sign; before it stands a provider's name, or it is a bare path.
        if equals and "/" not in name and (name in known or name in providers):
            if name not in providers:
                problems.append(f"--cloud-config: {name!r} is not among --cloud-provider")
            elif name in files:
                problems.append(f"--cloud-config: {name!r} is given twice")
            elif not path:
                problems.append(f"--cloud-config: {name}= has no file")
            files[name] = Path(path)
        else:
            bare.append(text)
    if len(providers) > 1 and bare:
        problems.append(f"--cloud-config: with several providers write NAME=FILE, not {bare[0]!r}")
    elif bare and (len(bare) > 1 or files):
        problems.append("--cloud-config: more than one file for one provider")
    elif bare and providers:
        files[providers[0]] = Path(bare[0])
    return tuple(CloudChoice(name, files.get(name)) for name in providers), problems


def _provider_problems(providers: Sequence[str], known: Collection[str]) -> list[str]:
    choices = ", ".join(sorted(known))
    if not providers:
        return [f"--cloud-provider is required: one or several of {choices}"]
    problems = []
    for name in providers:
        if name == "external":
            problems.append(f"--cloud-provider: 'external' is a value for kubelets; use one of {choices}")
        elif name not in known:
            problems.append(f"--cloud-provider: unknown cloud provider {name!r} (there are: {choices})")
    if len(set(providers)) < len(providers):
        problems.append("--cloud-provider: a provider is given twice")
    return problems
