"""`--help`: every flag in its section, with examples; and the short text after a mistake.

In: the name of the program and the provider it stands for. Out: text. Pure.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from bedplate.cloud.manager import features
from bedplate.cloud.manager.options import GROUPS, Options
from bedplate.core import flags

__all__ = ["full", "short"]

_WIDTH = 100


def short(program: str) -> str:
    """What to show after a mistake."""
    return f"Usage:\n  {program} [flags]\n\n{program} --help shows every flag.\n"


def full(program: str, provider: str = "", defaults: Options | None = None) -> str:
    """The whole help text."""
    own = defaults if defaults is not None else Options()
    lines = [
        *_introduction(provider),
        f"Usage:\n  {program} [flags]\n",
        "Examples:",
        *_examples(program, provider),
    ]
    for group in GROUPS:
        lines += ["", f"{group.title} flags:", ""]
        chosen = getattr(own, group.field)
        for one in flags.flags_of(group.kind):
            lines += flags.describe(one, getattr(chosen, one.field))
    lines += ["", "Feature gates (accepted; what each stands for is settled here):", ""]
    lines += [f"      {name}: {text}" for name, text in features.GATES.items()]
    return "\n".join(lines) + "\n"


def _introduction(provider: str) -> Iterator[str]:
    text = (
        "The cloud controller manager: initialises nodes from what their cloud knows of them (provider ID, addresses, "
        "type, zone, region), taints those whose machine is switched off, deletes those whose machine is gone, and "
        "keeps load balancers for Services, for one or several clouds at once."
    )
    yield textwrap.fill(text, _WIDTH) + "\n"
    if provider:
        yield (
            textwrap.fill(
                f"Without --cloud-provider this program works for {provider}; `bedplate ccm run` works for any.",
                _WIDTH,
            )
            + "\n"
        )
    yield (
        textwrap.fill(
            "Exit code: 0 after SIGTERM or SIGINT (a second one ends it at once), 1 for everything else: a wrong "
            "command line or configuration, lost leadership, an API server that does not answer at start.",
            _WIDTH,
        )
        + "\n"
    )


def _examples(program: str, provider: str) -> Iterator[str]:
    name = provider or "oxide"
    yield f"  {program} --cloud-provider={name} --kubeconfig=admin.conf -v=2"
    yield f"  {program} --cloud-provider {name} --cloud-config /etc/cloud/config.yaml --dry-run"
    yield f"  {program} --cloud-provider=nvidia-bmm,oxide --cloud-config=nvidia-bmm=bmm.yaml,oxide=oxide.yaml"
    yield f"  {program} --cloud-provider={name} --controllers='*,-service' --node-selector=pool=metal"
