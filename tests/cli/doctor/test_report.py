"""Commands that the doctor prints are about the cluster that it looked at, so that they can be pasted."""

from __future__ import annotations

from pathlib import Path

import pytest
from click import testing

from bedplate.cli.doctor import report
from bedplate.cli.doctor.command import doctor
from bedplate.cloud.doctor import problem

FIX = "kubectl -n x logs a; bedplate ipam explain ippool/p   # then: kubectl delete pod b; bedplate doctor ipam"
LABEL = "kubectl get pods -l my-kubectl=1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


def told(fix: str, kubeconfig: str = "", pools: str = "kube-system") -> str:
    (finding,) = report.pasteable([problem("pools", "p", "is bad", fix)], kubeconfig, pools)
    return finding.fix


def test_an_option_that_would_not_be_read_is_refused() -> None:
    done = testing.CliRunner().invoke(doctor, ["--kubeconfig", "f", "-o", "json", "ipam", "--no-cluster"])
    assert (done.exit_code, "--kubeconfig, --output: give options behind ipam" in done.output) == (2, True), done.output


def test_commands_about_the_cluster_of_the_environment_stay_as_they_are(folder: Path) -> None:
    assert told(FIX) == FIX


def test_commands_name_the_kubeconfig_and_the_namespace_that_were_given(folder: Path) -> None:
    assert told(FIX, "my file", "pools") == (
        "kubectl --kubeconfig='my file' -n x logs a; bedplate ipam explain ippool/p -n pools --kubeconfig='my file'"
        "   # then: kubectl --kubeconfig='my file' delete pod b; bedplate doctor ipam"
    )
    assert told(LABEL, "f") == "kubectl --kubeconfig=f get pods -l my-kubectl=1"
    other = "bedplate doctor --cloud-provider oxide"
    assert told(other, "f") == f"{other} --kubeconfig=f"


def test_in_the_folder_of_up_kubectl_is_the_one_that_finds_its_cluster(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".bedplate").mkdir()
    (folder / ".bedplate/kubeconfig").touch()
    assert told("kubectl delete node n; kubectl version") == "bedplate kubectl delete node n; bedplate kubectl version"
    assert told("kubectl version", "f") == "kubectl --kubeconfig=f version"
    monkeypatch.setenv("KUBECONFIG", "/mine")
    assert told("kubectl version") == "kubectl version"
