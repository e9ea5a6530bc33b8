"""Writes the manifests that are made from charts, and the version into the charts.

    python tools/manifest.py            write them (`make manifest`)
    python tools/manifest.py --check    write nothing; fail and name the files that are not up to date

In: VERSION and charts/. Out: `version` and `appVersion` of every Chart.yaml; what `helm template` prints for Oxide, in
manifests/oxide-cloud-controller-manager.yaml; deploy/rbac/ and deploy/manifests/deployment.yaml, from the chart of
NVIDIA BMM, without the labels that would make Helm take them for its own. Nobody edits these files by hand; a test runs
the check.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from bedplate.core import errors
from bedplate.lab import binaries

ROOT = Path(__file__).resolve().parent.parent
CHARTS = ROOT / "charts"
OXIDE = "oxide-cloud-controller-manager"
NVIDIA_BMM = "nvidia-bmm-cloud-controller-manager"
NOTE = "# Made from charts/{} by `make manifest`.\n"
# Which templates of the chart go into which folder of deploy/.
FOLDERS = {
    "rbac": ("serviceaccount", "clusterrole", "clusterrolebinding", "role", "rolebinding"),
    "manifests": ("deployment",),
}
_OF_HELM = re.compile(r"^ +(helm\.sh/chart|app\.kubernetes\.io/(version|managed-by)): .*\n", re.MULTILINE)
_SOURCE = re.compile(r"^# Source: [^/]+/templates/(\S+)\.yaml\n", re.MULTILINE)


def version() -> str:
    """The number of VERSION, which names it the way a tag is named."""
    return (ROOT / "VERSION").read_text().strip().removeprefix("v")


def rendered(chart: str) -> str:
    """What `helm template` says for a release named as the chart, in kube-system."""
    helm = binaries.ensure(["helm"])["helm"]
    command = [str(helm), "template", chart, str(CHARTS / chart), "--namespace", "kube-system"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        sys.exit(f"manifest: {done.stderr.strip()}")
    return done.stdout


def by_template(text: str) -> dict[str, str]:
    """The documents of a rendered chart by the template they come from."""
    found: dict[str, list[str]] = {}
    for document in re.split(r"^---\n", text, flags=re.MULTILINE):
        source = _SOURCE.search(document)
        if source is not None:
            found.setdefault(source[1], []).append(_SOURCE.sub("", document))
    return {name: "---\n".join(documents) for name, documents in found.items()}


def wanted() -> dict[Path, str]:
    """Every file with the text it should have, given charts of the right version."""
    files = {ROOT / "manifests" / f"{OXIDE}.yaml": rendered(OXIDE)}
    templates = by_template(rendered(NVIDIA_BMM))
    for folder, names in FOLDERS.items():
        for name in names:
            text = NOTE.format(NVIDIA_BMM) + _OF_HELM.sub("", templates[name])
            files[ROOT / "deploy" / folder / f"{name}.yaml"] = text
    return files


def versioned(chart: str) -> str:
    """A Chart.yaml of the version in VERSION."""
    return re.sub(r"(?m)^(version|appVersion): .*$", rf'\1: "{version()}"', chart)


def main(is_check: bool) -> int:
    stale: list[Path] = []
    for path in sorted(CHARTS.glob("*/Chart.yaml")):
        _settle(path, versioned(path.read_text()), is_check, stale)
    for path, text in wanted().items():
        _settle(path, text, is_check, stale)
    for path in stale:
        print(f"{path.relative_to(ROOT)} {'is not up to date: make manifest' if is_check else 'written'}")
    return 1 if stale and is_check else 0


def _settle(path: Path, text: str, is_check: bool, stale: list[Path]) -> None:
    if path.exists() and path.read_text() == text:
        return
    stale.append(path)
    if not is_check:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    try:
        sys.exit(main("--check" in sys.argv[1:]))
    except errors.BedplateError as err:
        sys.exit(f"manifest: {err}")
