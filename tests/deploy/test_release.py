"""The release workflow: it runs for tags, names only what exists here, and releases only the version of VERSION."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml
from tests.deploy.conftest import CHARTS, ROOT, chart_folder

WORKFLOW = ROOT / ".github" / "workflows" / "release.yaml"


def jobs() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    return found


def scripts() -> list[str]:
    return [step["run"] for job in jobs().values() for step in job["steps"] if "run" in step]


def test_it_runs_for_version_tags_alone() -> None:
    # YAML 1.1 reads the key `on` as a truth value.
    triggers = yaml.safe_load(WORKFLOW.read_text())[True]
    assert triggers == {"push": {"tags": ["v*"]}}


def test_nothing_is_pushed_before_the_check_has_passed() -> None:
    pushing = {name for name, job in jobs().items() if any("push" in str(step.get("run", "")) for step in job["steps"])}
    assert pushing == {"image", "publish"}
    assert jobs()["image"]["needs"] == "check" and jobs()["publish"]["needs"] == "image"
    assert any('"$GITHUB_REF_NAME" = "$(cat VERSION)"' in step.get("run", "") for step in jobs()["check"]["steps"])


def test_it_uses_only_targets_tools_and_folders_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for script in scripts():
        for line in re.findall(r"\bmake ([a-z-]+(?: [a-z-]+)*)(?= |$)", script, re.MULTILINE):
            for target in line.split():
                assert re.search(rf"(?m)^{target}:", makefile), target
        for path in re.findall(r"\b(?:tools|manifests|charts)/[\w-]+\.py", script):
            assert (ROOT / path).exists(), path


def test_images_are_named_as_the_charts_name_them() -> None:
    pairs = dict(each.split("=") for each in yaml.safe_load(WORKFLOW.read_text())["env"]["IMAGES"].split())
    assert set(pairs) == set(CHARTS)
    for chart, name in pairs.items():
        values = yaml.safe_load((chart_folder(chart) / "values.yaml").read_text())
        assert values["deployment"]["image"]["name"].rpartition("/")[2] == name


def test_every_script_is_one_that_a_shell_can_read() -> None:
    for script in scripts():
        plain = re.sub(r"\$\{\{[^}]*\}\}", "x", script)
        done = subprocess.run(["bash", "-n", "-c", plain], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{script}\n{done.stderr}"


def test_the_version_is_written_as_a_tag_is_and_the_charts_have_it() -> None:
    version = (ROOT / "VERSION").read_text().strip()
    assert re.fullmatch(r"v\d+\.\d+\.\d+", version)
    for chart in CHARTS:
        facts = yaml.safe_load((chart_folder(chart) / "Chart.yaml").read_text())
        assert facts["version"] == facts["appVersion"] == version.removeprefix("v")
        assert facts["name"] == Path(chart_folder(chart)).name


def test_the_dockerfile_and_the_archive_make_the_same_image() -> None:
    text = (ROOT / "Dockerfile").read_text()
    tool = (ROOT / "tools" / "rootfs.py").read_text()
    environ = dict(re.findall(r"([A-Z_]+)=(\S+)", text.split("ENV ")[1].split("USER")[0]))
    assert environ == {
        "HOME": "/home/nonroot",
        "PATH": "/usr/bin",
        "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for value in environ.values():
        assert f'"{value}"' in tool
    assert "USER 65532:65532" in text and 'ENTRYPOINT ["/usr/bin/cloud-controller-manager"]' in text
    assert re.findall(r"ADD (\S+) /", text) == ["build/rootfs/base.tar", "build/rootfs/app.tar"]
    kept = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")}
    assert kept == {"build/rootfs/base.tar", "build/rootfs/app.tar"}
