"""Rendered values as facts, for `explain` and `plan`: files by digest, flags, packages, taints and checks.

In: a tree and a resolved node. Out: facts; nothing of a file's content, and of a secret file not even its digest as
text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bedplate.api.desired import File
from bedplate.core import errors
from bedplate.head import resolve
from bedplate.head.explain import Fact, Renderer
from bedplate.head.render.assemble import render
from bedplate.head.resolve import Resolved
from bedplate.head.tree import Tree

__all__ = ["RENDERERS", "facts_of", "rendered_file"]


def facts_of(tree: Tree, resolved: Resolved) -> Iterable[Fact]:
    """The facts that rendering adds to those of resolution."""
    rendered = render(tree, resolved)
    for path, (file, source, next_best) in rendered.files.items():
        owner = "" if (file.owner, file.group) == ("root", "root") else f" {file.owner}:{file.group}"
        shown = "secret" if file.secret else f"sha256:{file.digest[:16]}"
        yield Fact(
            "file", path, f"{file.mode}{owner} {shown}", source, next_best, (file.digest, file.block), _effects(file)
        )
    for path, origin in rendered.unmanaged.items():
        yield Fact("unmanaged", path, "left as it is found", origin)
    for name, origin in rendered.packages.items():
        yield Fact("package", name, "", origin)
    for name, (flag, source, _) in rendered.flags.items():
        yield Fact("flag", name, flag.argument, source)
    for name, (_, source, _) in rendered.taints.items():
        yield Fact("taint", name, "", source)
    for name, (check, source, _) in rendered.checks.items():
        yield Fact("check", name, f"every {check.interval_s:g} s", source)
    for text, origin in rendered.warnings.items():
        yield Fact("warning", text, "", origin)
    for exclude in rendered.excludes:
        yield Fact("exclude", f"{exclude.mode}:{exclude.pattern}", exclude.pattern, exclude.source)
    for name, given in rendered.labels.items():
        if name not in resolved.labels:
            yield Fact("label", name, given.value, given.source)


def _effects(file: File) -> tuple[tuple[str, str], ...]:
    tested = (("test", file.path),) if file.test else ()
    acts = tuple((file.action.lower(), service) for service in file.services) if file.action != "NONE" else ()
    return (*tested, *acts)


RENDERERS: Sequence[Renderer] = (facts_of,)
"""What `explain` and `plan` are given so that rendered files take part."""


def rendered_file(tree: Tree, node: str, path: str) -> File:
    """One file of a node as it may be shown: a secret one without its content. Raises `NotFound`."""
    file = render(tree, resolve.resolve(tree, node)).files.get(path)
    if file is None:
        raise errors.NotFound(
            f"no file {path} is managed on {node}", hint=f"explain on device {node} lists the managed files"
        )
    return file.value.masked()
