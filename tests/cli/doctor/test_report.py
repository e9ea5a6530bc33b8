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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--metrics-insecure", "--metrics-insecure needs --metrics-url"),
        ("--metrics-token-file f", "--metrics-token-file needs --metrics-url"),
        ("--metrics-ca-file f", "--metrics-ca-file needs --metrics-url"),
        ("--cloud-provider ,", "--cloud-provider is required"),
        ("--cloud-provider oxide,oxide", "a provider is given twice"),
        ("--cloud-provider oxide --cloud-config oxide=", "oxide= has no file"),
        ("--cloud-provider oxide --cloud-config a,b", "more than one file for one provider"),
        ("--cloud-provider oxide,cloudlycke --cloud-config f", "with several providers write NAME=FILE"),
        ("--cloud-provider oxide --cloud-config cloudlycke=f", "'cloudlycke' is not among --cloud-provider"),
        ("--cloud-config f", "--cloud-config needs --cloud-provider"),
        ("--service-account /", "'/' must be NAMESPACE/NAME"),
        ("--service-account a/b/c", "'a/b/c' must be NAMESPACE/NAME"),
        ("--service-account /a", "'/a' must be NAMESPACE/NAME"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_looked_at(words: str, told: str, folder: Path) -> None:
    done = testing.CliRunner().invoke(doctor, words.split())
    text = f"{done.output}{done.exception}"
    assert told in text and "kubernetes-api" not in text, text


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (None, "→ pass --kubeconfig, or set KUBECONFIG"),
        ("", "→ correct the kubeconfig, or pass another with --kubeconfig"),
        ("- 1", "→ correct the kubeconfig, or pass another with --kubeconfig"),
    ],
)
@pytest.mark.parametrize("command", ["", "ipam"])
def test_what_to_do_about_the_kubeconfig_fits_what_was_given(
    command: str, text: str | None, remedy: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    words = command.split()
    if text is not None:
        (folder / "file").write_text(text)
        words += ["--kubeconfig", "file"]
    done = testing.CliRunner().invoke(doctor, words)
    assert (done.exit_code, remedy in done.output) == (2, True), done.output


def test_what_to_do_about_a_wrong_configuration_is_told_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    done = testing.CliRunner().invoke(doctor, ["--cloud-provider", "nowhere"])
    assert (done.exit_code, done.output.count("takes one or several of")) == (1, 1), done.output


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
