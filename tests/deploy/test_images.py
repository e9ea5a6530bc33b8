"""One image: what charts, manifests and overlays name, how another name gets there, and that a release makes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deploy.conftest import CHARTS, IMAGE, ROOT, VERSION, chart_folder, load_tool

from bedplate.core import errors

manifest = load_tool("manifest")
WORKFLOWS = ROOT / ".github" / "workflows"
PUSHED = f"ghcr.io/someone/bedplate:{VERSION}@sha256:{64 * 'a'}"
# Registries of the programs that these stand in for: what they publish is not ours to name as an image.
ORIGINALS = ("oxidecomputer/", "fabiendupont/", "mikejoh/", "nvidia/cloud-native", "mellanox/")


# What runs none of our programs: an nginx that passes requests on.
FOREIGN = ROOT / "deploy" / "head" / "landingpage.yaml"


def yaml_files() -> list[Path]:
    """Every file that a cluster is given and that runs one of our programs, except a chart's templates."""
    found = [path for folder in ("deploy", "manifests") for path in (ROOT / folder).rglob("*") if path.is_file()]
    found.remove(FOREIGN)
    return [path for path in found if path.suffix == ".yaml" or path.name == "Kustomization"]


def images(value: Any) -> Iterator[str]:
    """Every image that an object names, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "image" and isinstance(inner, str):
                yield inner
            yield from images(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from images(inner)


def named() -> dict[Path, set[str]]:
    """The images of every manifest, overlay and chart."""
    found: dict[Path, set[str]] = {}
    for path in yaml_files():
        documents = [each for each in yaml.safe_load_all(path.read_text()) if each]
        names = set(images(documents))
        for document in documents:
            names |= {f"{each['newName']}:{each['newTag']}" for each in document.get("images", [])}
        if names:
            found[path] = names
    for chart in CHARTS:
        values = yaml.safe_load((chart_folder(chart) / "values.yaml").read_text())["deployment"]["image"]
        found[chart_folder(chart)] = {f"{values['name']}:{values['tag'] or VERSION}"}
    return found


def test_every_image_named_is_the_one_that_the_release_makes() -> None:
    found = named()
    assert {path.name for path in found} >= {"deployment.yaml", "daemonset.yaml", "cloudlycke-ccm.yaml"}
    assert {image for names in found.values() for image in names} == {IMAGE}


def test_the_name_in_the_repository_cannot_be_published() -> None:
    host = IMAGE.partition("/")[0]
    assert host.endswith(".example"), "a domain that is reserved: pulling it fails"


def test_no_file_names_a_tag_that_changes_or_an_image_of_the_originals() -> None:
    folders = ("charts", "deploy", "manifests", "config", ".github", "docs/guides", "docs/tutorials")
    for path in [ROOT / "Makefile", *(path for folder in folders for path in (ROOT / folder).rglob("*"))]:
        # Other tests import programs of these folders.
        if path.is_file() and path.parent.name != "__pycache__":
            text = path.read_text()
            assert not re.search(r"[\w/-]+:latest\b", text), path
            assert not [owner for owner in ORIGINALS if re.search(rf"(ghcr\.io/|image: ){owner}", text)], path


def test_every_overlay_takes_the_image_from_one_place() -> None:
    overlays = ROOT / "deploy" / "overlays"
    for path in overlays.glob("*/kustomization.yaml"):
        content = yaml.safe_load(path.read_text())
        # One overlay may be based on another, which has it.
        bases = [overlays / each[3:] / path.name for each in content["resources"] if re.fullmatch(r"\.\./[\w-]+", each)]
        having = [content, *(yaml.safe_load(base.read_text()) for base in bases)]
        assert "../../image" in [part for each in having for part in each.get("components", [])], path


def test_a_release_rewrites_every_file_to_what_it_pushed() -> None:
    rewritten = {path: change(path.read_text()) for path, change in manifest.with_image(PUSHED)}
    name, _, tag = PUSHED.partition(":")
    for path in named():
        file = path / "values.yaml" if path.is_dir() else path
        text = rewritten[file]
        assert IMAGE not in text and IMAGE.rpartition(":")[0] not in text, file
        if file.name == "values.yaml":
            assert yaml.safe_load(text)["deployment"]["image"] == {"name": name, "tag": tag}
        elif file.name == "kustomization.yaml":
            assert yaml.safe_load(text)["images"] == [{"name": name, "newName": name, "newTag": tag}]
        else:
            documents = list(yaml.safe_load_all(text))
            assert set(images(documents)) == {PUSHED}
    # And back, without a trace.
    for path, change in manifest.with_image(IMAGE):
        assert change(rewritten[path]) == path.read_text(), path


def test_only_the_image_changes() -> None:
    for path, change in manifest.with_image(PUSHED):
        before, after = path.read_text().splitlines(), change(path.read_text()).splitlines()
        assert len(before) == len(after)
        changed = [old for old, new in zip(before, after, strict=True) if old != new]
        assert all(IMAGE.rpartition(":")[0] in old or "tag:" in old or "newTag:" in old for old in changed), path


def test_no_tag_in_a_chart_means_its_version() -> None:
    text = (chart_folder("oxide") / "values.yaml").read_text()
    same = yaml.safe_load(manifest.in_values(text, f"host:5000/team/bedplate:{VERSION}", VERSION))
    assert same["deployment"]["image"] == {"name": "host:5000/team/bedplate", "tag": ""}
    other = yaml.safe_load(manifest.in_values(text, "host:5000/team/bedplate:mine", VERSION))
    assert other["deployment"]["image"] == {"name": "host:5000/team/bedplate", "tag": "mine"}


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("host/bedplate:1", ("host/bedplate", "1")),
        ("host:5000/a/b:1.2", ("host:5000/a/b", "1.2")),
        (f"host/b:1@sha256:{64 * 'f'}", ("host/b", f"1@sha256:{64 * 'f'}")),
    ],
)
def test_an_image_is_split_into_name_and_tag(image: str, parts: tuple[str, str]) -> None:
    assert manifest.split(image) == parts


@pytest.mark.parametrize("image", ["bedplate:1", "host:5000/bedplate", "host/bedplate:latest", "host/ bedplate:1", ""])
def test_an_image_without_registry_or_lasting_tag_is_refused(image: str) -> None:
    with pytest.raises(errors.Invalid):
        manifest.split(image)


def test_makefile_tools_and_workflows_have_one_variable_for_it() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.findall(r"(?m)^IMG.*=.*$", makefile) == ["IMG ?= $(shell cat IMAGE):$(VERSION:v%=%)"]
    used = re.findall(r"--image (\S+)", makefile)
    assert len(used) >= 6 and set(used) == {"$(IMG)"}
    host = IMAGE.partition("/")[0]
    for path in [*(ROOT / "tools").glob("*.py"), *WORKFLOWS.glob("*.yaml"), ROOT / "Makefile", ROOT / "Dockerfile"]:
        assert host not in path.read_text(), f"{path} names the registry itself"


def test_a_helm_that_has_to_be_built_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It takes minutes, in which nothing else would be seen."""

    def ensure(names: list[str], *, progress: Callable[[str], None]) -> dict[str, Path]:
        progress("building helm")
        return {name: Path("/helm") for name in names}

    monkeypatch.setattr(manifest.binaries, "ensure", ensure)
    assert manifest.helm() == "/helm"
    assert capsys.readouterr().err == "helm: building helm\n"
