"""Writes the version and the image into charts, manifests and overlays, and the manifests that are made from charts.

    python tools/manifest.py [--image NAME]            write them (`make manifest IMG=NAME`)
    python tools/manifest.py [--image NAME] --check    write nothing; fail and name the files that are not up to date

In: VERSION, IMAGE (registry and name of the one image) and charts/. `--image` is another full name with its tag, and
may end in a digest: what a release pushed, or a user's own. Out: `version` and `appVersion` of every Chart.yaml, the
image in every values.yaml; what `helm template` prints for Oxide, in manifests/oxide-cloud-controller-manager.yaml;
deploy/rbac/ and deploy/manifests/deployment.yaml, from the chart of NVIDIA BMM, without the labels that would make Helm
take them for its own; the image in every other file of deploy/ and manifests/. A test runs the check.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
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
_IMAGE = re.compile(r"(?m)^( +(?:- )?image: +)(\"?)[^\s\"{]+(\"?)$")
_VALUES = re.compile(r"(?m)^(  image:\n(?:    #.*\n)*)    name: .*\n((?:    #.*\n)*)    tag: .*$")
_TRANSFORMER = re.compile(r"(?m)^  - name: .*\n    newName: .*\n    newTag: .*$")


def version() -> str:
    """The number of VERSION, which names it the way a tag is named."""
    return (ROOT / "VERSION").read_text().strip().removeprefix("v")


def default_image() -> str:
    """The image that the files in the repository name."""
    return f"{(ROOT / 'IMAGE').read_text().strip()}:{version()}"


def split(image: str) -> tuple[str, str]:
    """Name and tag of an image; a digest stays with the tag."""
    folder, slash, last = image.rpartition("/")
    name, _, tag = last.partition(":")
    if not (slash and name and tag) or re.search(r"\s", image):
        raise errors.Invalid(
            f"{image!r} must be REGISTRY/NAME:TAG", hint="set IMG, for example to host:5000/bedplate:1"
        )
    if tag == "latest":
        raise errors.Invalid(f"{image!r} must have a tag that does not change", hint="use the version, not latest")
    return f"{folder}/{name}", tag


def in_values(text: str, image: str, app_version: str) -> str:
    """A chart's values.yaml that names the image. No tag means the chart's appVersion."""
    name, tag = split(image)
    shown = "" if tag == app_version else tag
    return _VALUES.sub(rf'\g<1>    name: {name}\n\g<2>    tag: "{shown}"', text)


def in_manifest(text: str, image: str) -> str:
    """A manifest whose containers all run the image."""
    split(image)
    return _IMAGE.sub(lambda found: f"{found[1]}{found[2]}{image}{found[3]}", text)


def in_kustomization(text: str, image: str) -> str:
    """A kustomization whose `images` entry gives the image to every overlay; the manifests below it name it already."""
    name, tag = split(image)
    return _TRANSFORMER.sub(f'  - name: {name}\n    newName: {name}\n    newTag: "{tag}"', text)


def with_image(image: str) -> Iterator[tuple[Path, Callable[[str], str]]]:
    """Every file that names the image, with the function that writes it there."""
    for path in sorted(CHARTS.glob("*/values.yaml")):
        yield path, lambda text: in_values(text, image, version())
    yield ROOT / "deploy" / "image" / "kustomization.yaml", lambda text: in_kustomization(text, image)
    for path in sorted([*ROOT.glob("manifests/*.yaml"), *ROOT.glob("deploy/manifests/**/*.yaml")]):
        yield path, lambda text: in_manifest(text, image)


def helm() -> str:
    """helm; where there is none it is built, which takes minutes and is told."""
    return str(binaries.ensure(["helm"], progress=lambda line: print(f"helm: {line}", file=sys.stderr))["helm"])


def rendered(chart: str) -> str:
    """What `helm template` says for a release named as the chart, in kube-system."""
    command = [helm(), "template", chart, str(CHARTS / chart), "--namespace", "kube-system"]
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


def main(image: str, is_check: bool) -> int:
    stale: list[Path] = []
    for path in sorted(CHARTS.glob("*/Chart.yaml")):
        _settle(path, versioned(path.read_text()), is_check, stale)
    for path, written in with_image(image):
        _settle(path, written(path.read_text()), is_check, stale)
    for path, text in wanted().items():
        _settle(path, text, is_check, stale)
    for path in dict.fromkeys(stale):
        print(f"{path.relative_to(ROOT)} {'is not up to date: make manifest' if is_check else 'written'}")
    return 1 if stale and is_check else 0


def _settle(path: Path, text: str, is_check: bool, stale: list[Path]) -> None:
    if path.exists() and path.read_text() == text:
        return
    stale.append(path)
    if not is_check:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Write version and image into charts, manifests and overlays.")
    parser.add_argument("--image", default=default_image(), help="full name of the image, with its tag")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is not up to date")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        given = _arguments()
        sys.exit(main(given.image, given.check))
    except errors.BedplateError as err:
        sys.exit(f"manifest: {err}")
