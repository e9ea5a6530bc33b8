"""`--help`: every flag in its section, with examples.

In: the name of the program and the provider it stands for. Out: text. Pure.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from bedplate.cloud.manager import features
from bedplate.cloud.manager.options import GROUPS, Options
from bedplate.core import flag_groups

__all__ = ["full"]

_WIDTH = 100


def full(program: str, provider: str = "", defaults: Options | None = None) -> str:
    """The whole help text."""
    own = defaults if defaults is not None else Options()
    lines = [
        *_introduction(provider),
        f"Usage:\n  {program} [flags]\n",
        "Examples:",
        *_examples(program, provider),
    ]
    lines += flag_groups.sections(GROUPS, own)
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
