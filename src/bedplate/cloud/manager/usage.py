"""`--help`: every flag in its section, with examples.

In: the name of the program and the provider it stands for. Out: text. Pure.
"""

from __future__ import annotations

from bedplate.cloud.manager import features
from bedplate.cloud.manager.options import Options
from bedplate.program import options

__all__ = ["full"]

_ABOUT = (
    "The cloud controller manager: initialises nodes from what their cloud knows of them (provider ID, addresses, "
    "type, zone, region), taints those whose machine is switched off, deletes those whose machine is gone, and "
    "keeps load balancers for Services, for one or several clouds at once."
)
_EXITS = (
    "Exit code: 0 after SIGTERM or SIGINT (a second one ends it at once), 1 for everything else: a wrong "
    "command line or configuration, lost leadership, an API server that does not answer at start."
)


def full(program: str, provider: str = "", defaults: Options | None = None) -> str:
    """The whole help text."""
    about = [_ABOUT]
    if provider:
        about.append(f"Without --cloud-provider this program works for {provider}; `bedplate ccm run` works for any.")
    notes = ["", "Feature gates (accepted; what each stands for is settled here):", ""]
    notes += [f"      {name}: {text}" for name, text in features.GATES.items()]
    return options.help_text(program, [*about, _EXITS], _examples(provider or "oxide"), defaults or Options(), notes)


def _examples(provider: str) -> list[str]:
    return [
        f"--cloud-provider={provider} --kubeconfig=admin.conf -v=2",
        f"--cloud-provider {provider} --cloud-config /etc/cloud/config.yaml --dry-run",
        "--cloud-provider=nvidia-bmm,oxide --cloud-config=nvidia-bmm=bmm.yaml,oxide=oxide.yaml",
        f"--cloud-provider={provider} --controllers='*,-service' --node-selector=pool=metal",
    ]
