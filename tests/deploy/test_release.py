"""The workflows: a release runs for tags, names only what exists here, and no job has a right that it does not use."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deploy.conftest import CHARTS, IMAGE, ROOT, chart_folder, load_tool

WORKFLOWS = ROOT / ".github" / "workflows"
WORKFLOW = WORKFLOWS / "release.yaml"
FILES = sorted(WORKFLOWS.glob("*"))
# Which job may write what; every other right is to read the sources.
WRITES = {
    ("release.yaml", "image"): {"packages", "id-token", "attestations"},
    ("release.yaml", "publish"): {"packages", "id-token", "attestations"},
    ("release.yaml", "release"): {"contents"},
}


def jobs(workflow: Path = WORKFLOW) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(workflow.read_text())["jobs"]
    return found


def scripts(workflow: Path = WORKFLOW) -> list[str]:
    return [step["run"] for job in jobs(workflow).values() for step in job["steps"] if "run" in step]


def triggers(workflow: Path) -> Any:
    # YAML 1.1 reads the key `on` as a truth value.
    return yaml.safe_load(workflow.read_text())[True]


def test_it_runs_for_version_tags_alone() -> None:
    assert triggers(WORKFLOW) == {"push": {"tags": ["v*"]}}


def test_changes_are_checked_before_they_are_merged_without_rights_or_secrets() -> None:
    workflow = WORKFLOWS / "check.yaml"
    assert set(triggers(workflow)) == {"pull_request", "push"}
    said = "\n".join(scripts(workflow))
    assert "make lint" in said and "make test" in said and ".ci/run" in said
    assert "secrets." not in workflow.read_text()


@pytest.mark.parametrize("workflow", FILES, ids=lambda path: path.name)
def test_every_action_is_named_by_its_digest(workflow: Path) -> None:
    used = re.findall(r"(?m)^ *(?:- )?uses: (.*)$", workflow.read_text())
    assert used
    for each in used:
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each), each
    # One digest for one action, in every workflow.
    digests = {each.partition(" ")[0] for file in FILES for each in re.findall(r"uses: (.*)", file.read_text())}
    assert len(digests) == len({each.partition("@")[0] for each in digests})


def test_a_digest_that_is_not_the_commit_of_its_tag_is_found(tmp_path: Path) -> None:
    tool = load_tool("actions")
    answer = "1111\trefs/tags/v1.0.0\n2222\trefs/tags/v2.0.0\n3333\trefs/tags/v2.0.0^{}\n"
    assert tool.parse(answer) == {"v1.0.0": "1111", "v2.0.0": "3333"}
    workflow = tmp_path / "a.yaml"
    asked = []

    def tags(repository: str) -> dict[str, str]:
        asked.append(repository)
        return dict(tool.parse(answer))

    uses = ("a/right@1111 # v1.0.0", "a/peeled/part@3333 # v2.0.0", "a/wrong@2222 # v2.0.0", "a/none@1111 # v3.0.0")
    workflow.write_text("".join(f"      - uses: {each}\n" for each in uses))
    assert tool.problems([workflow], tags) == [
        "a/none@1111: v3.0.0 is not a tag there",
        "a/wrong@2222: v2.0.0 is 3333",
    ]
    assert sorted(asked) == ["a/none", "a/peeled", "a/right", "a/wrong"]
    # Before a change is merged, and before a release pushes anything.
    assert "python3 tools/actions.py" in scripts(WORKFLOWS / "check.yaml")
    assert "python3 tools/actions.py" in [step.get("run") for step in jobs()["check"]["steps"]]


@pytest.mark.parametrize("workflow", FILES, ids=lambda path: path.name)
def test_every_job_has_the_rights_that_it_needs_and_no_others(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text())["permissions"] == {}
    assert "pull_request_target" not in triggers(workflow)
    for name, job in jobs(workflow).items():
        rights = job["permissions"]
        assert {right for right, level in rights.items() if level == "write"} == WRITES.get(
            (workflow.name, name), set()
        ), name
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False, name
            assert "${{" not in step.get("run", ""), "an expression in a script is code that whoever names it writes"


def test_what_is_pushed_is_signed_with_provenance_and_sbom() -> None:
    for job, has_sbom in (("image", True), ("publish", False)):
        (step,) = [each for each in jobs()[job]["steps"] if each.get("uses", "").startswith("actions/attest@")]
        # Without an SBOM or another statement, the action writes the provenance.
        assert ("sbom-path" in step["with"]) is has_sbom and "predicate-type" not in step["with"]
        assert step["with"]["push-to-registry"] is True
    assert any("cosign sign --yes" in script for script in scripts())


def test_charts_and_manifests_of_a_release_name_what_it_pushed() -> None:
    (script,) = [each for each in scripts() if "make manifest" in each]
    named = re.findall(r"IMG=(\S+)", script)
    assert named and set(named) == {'"$IMG@$DIGEST"'}
    assert script.index("make manifest") < script.index("make helm-push") < script.index("cp manifests/*.yaml")
    folders = {f"{each}-cloud-controller-manager" for each in CHARTS}
    assert {path.name for path in (ROOT / "charts").iterdir()} == folders


def test_nothing_is_pushed_before_the_check_has_passed() -> None:
    pushing = {name for name, job in jobs().items() if any("push" in str(step.get("run", "")) for step in job["steps"])}
    assert pushing == {"image", "publish"}
    assert jobs()["image"]["needs"] == "check" and jobs()["publish"]["needs"] == ["check", "image"]
    assert "publish" in jobs()["release"]["needs"]
    assert any('"$GITHUB_REF_NAME" = "$(cat VERSION)"' in step.get("run", "") for step in jobs()["check"]["steps"])


def test_it_uses_only_targets_tools_and_folders_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for script in [each for workflow in FILES for each in scripts(workflow)]:
        for line in re.findall(r"\bmake ([a-z-]+(?: [a-z-]+)*)(?= |$)", script, re.MULTILINE):
            for target in line.split():
                assert re.search(rf"(?m)^{target}:", makefile), target
        for path in re.findall(r"\b(?:tools|manifests|charts)/[\w-]+\.py", script):
            assert (ROOT / path).exists(), path


def test_the_image_has_the_name_in_the_repository_below_the_owners_registry() -> None:
    (script,) = [each for each in scripts() if "GITHUB_OUTPUT" in each and "cat IMAGE" in each]
    environ = {"GITHUB_REPOSITORY_OWNER": "SomeOne", "GITHUB_REF_NAME": "v1.2.3", "GITHUB_OUTPUT": "/dev/stdout"}
    path = "/usr/local/bin:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-ec", script], cwd=ROOT, env={**environ, "PATH": path}, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    assert done.stdout == f"image=ghcr.io/someone/{IMAGE.rpartition('/')[2].partition(':')[0]}:1.2.3\n"
    for name in ("image", "publish"):
        assert jobs()[name]["env"]["IMG"] == "${{ needs.check.outputs.image }}"


def test_every_script_is_one_that_a_shell_can_read() -> None:
    for script in [each for workflow in FILES for each in scripts(workflow)]:
        done = subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True, timeout=60, check=False)
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
