"""Reference pages of the setup tool, out of its declarations: flags, answers, and the JSON Schema of answers.

In: the tables of `bedplate.setup`. Out: Markdown and JSON, for `tools/docs.py` to write.
"""

from __future__ import annotations

import json

from pagetext import NOTE, table

from bedplate.setup.answers import declaration, document, features, jsonschema
from bedplate.setup.answers.declaration import Field
from bedplate.setup.operators import OPERATORS
from bedplate.setup.tool.flags import DEPLOY, FLAGS, GROUPS, Flag

__all__ = ["answers_page", "flags_page", "schema_file"]


def flags_page() -> str:
    """docs/reference/setup-flags.md."""
    parts = [
        NOTE,
        "# cm-kubernetes-setup: flags\n",
        "How to use them is in [the guide](../guides/kubernetes-setup.md). A flag given with an action that it does "
        "not belong to is refused. A command line without an action deploys: with `-c FILE` without questions, else "
        "with the wizard.\n",
    ]
    for group in GROUPS:
        rows = [(_word(flag), _with(flag), flag.help) for flag in FLAGS if flag.group == group]
        parts += [f"## {group}\n", table(("Flag", "With", "Meaning"), rows)]
    parts += ["## Operators\n", "`--list-operators-versions` prints these.\n"]
    rows = [(each.title, ", ".join(each.versions) or _by_minor(each.by_minor)) for each in OPERATORS]
    parts.append(table(("Operator", "Versions, the default first"), rows))
    return "\n".join(parts)


def _by_minor(pairs: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{version} for Kubernetes {minor}" for minor, version in pairs)


def _word(flag: Flag) -> str:
    names = ["-c" if flag.name == "config" else f"--{flag.name}", *(["-v"] if flag.letter == "v" else [])]
    return ", ".join(f"`{name}`" for name in names) + (f" `{flag.metavar}`" if flag.metavar else "")


def _with(flag: Flag) -> str:
    if flag.is_action:
        return "an action"
    if flag.actions is None:
        return "all"
    return ", ".join("a deployment" if name == DEPLOY else f"`--{name}`" for name in flag.actions)


def answers_page() -> str:
    """docs/reference/setup-answers.md."""
    parts = [
        NOTE,
        "# Answers of cm-kubernetes-setup\n",
        "A YAML file for `cm-kubernetes-setup -c FILE`. The wizard writes one; `config/setup-answers.schema.json` is "
        "its JSON Schema. Of all keys only the control-plane nodes are required. Every problem of a file is told at "
        "once, with key and line, before anything is changed.\n",
        "```yaml",
        "kubernetes:",
        "  nodes:",
        "    masters: {nodes: [node001]}",
        '    workers: {nodes: ["node00[2-3]"]}',
        "```\n",
        "`meta` says who wrote the file: " + ", ".join(f"`{key}`" for key in document.META) + ".\n",
    ]
    rows = [(f"`{each.path}`", each.kind.about, _default(each), each.help) for each in declaration.FIELDS]
    parts.append(table(("Key", "Value", "Default", "Meaning"), rows))
    parts += ["## Operators\n", _OPERATORS]
    below = [each for each in features.of_operators() if each.path.startswith(f"{features.OPERATORS_PATH}.metallb.")]
    rows = [(f"`{each.path.rpartition('.')[2]}`", _about(each), each.help) for each in below]
    parts.append(table(("Key", "Value", "Meaning"), rows))
    rows = [
        (
            f"`{each.name}`",
            ", ".join(f"`{word}`" for word in each.aliases) or "none",
            f"`{each.release or each.name}`",
            f"`{each.namespace or each.name}`",
            ", ".join(each.known),
        )
        for each in OPERATORS
    ]
    parts.append(table(("Operator", "Other spellings", "Release", "Namespace", "Versions, the default first"), rows))
    return "\n".join(parts)


_OPERATORS = """\
An operator that is a key below `kubernetes.operators` is installed:

```yaml
kubernetes:
  operators:
    gpu-operator:
      version: 24.6.2
      chart: /charts/gpu-operator-v24.6.2.tgz
      values_file: /charts/gpu-operator.yaml
      options: {toolkit.enabled: false, "toolkit.env[0].name": CONTAINERD_CONFIG}
```
"""


def _about(field: Field) -> str:
    return (
        "one of its versions, in quotes where it looks like a number" if "version" in field.path else field.kind.about
    )


def _default(field: Field) -> str:
    if field.is_prefilled:
        return "chosen to fit the site"
    text = field.kind.text(field.default)
    return f"`{text}`" if text else "empty"


def schema_file() -> str:
    """config/setup-answers.schema.json."""
    return json.dumps(jsonschema.schema(), indent=2) + "\n"
