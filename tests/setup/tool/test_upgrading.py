"""`--upgrade` on the command line: what is refused before anything is looked at, and what a resumed run takes."""

from __future__ import annotations

import pytest
from tests.setup.tool.driving import Tool

from bedplate.core import errors
from bedplate.head.clusters.draining import Consent
from bedplate.setup.kubernetes.upgrade import stages
from bedplate.setup.kubernetes.upgrade.planning import Member, Version, plan
from bedplate.setup.tool import upgrading


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--upgrade", "1.19"), "Kubernetes 1.19 is not supported"),
        (("--upgrade", "2.0"), "Kubernetes 2.0 is not supported"),
        (("--upgrade", "v2.0.1"), "Kubernetes 2.0.1 is not supported"),
        (("--upgrade", "1.\u0663\u0665.\u0664"), "is not a Kubernetes version"),
        (("--upgrade", "1.35.4-rc.1"), "'1.35.4-rc.1' is not a Kubernetes version"),
        (("--upgrade", ""), "'' is not a Kubernetes version"),
        (("--upgrade", "1.19.1"), "Kubernetes 1.19.1 is not supported"),
        (("--upgrade", "next"), "'next' is not a Kubernetes version"),
        (("--upgrade", ".."), "'..' is not a Kubernetes version"),
        (("--upgrade", "1.35", "--batch", "0"), "--batch"),
        (("--upgrade", "1.35", "--remove"), "--upgrade and --remove are mutually exclusive"),
        (("--batch", "2"), "--batch does not apply to a deployment; it is for --upgrade"),
        (("--remove", "--delete-emptydir-data"), "--delete-emptydir-data does not apply to --remove"),
        (("--upgrade", "1.35", "-c", "x.yaml"), "-c does not apply to --upgrade"),
    ],
)
def test_item_166_what_cannot_be_is_refused_with_a_sentence(tool: Tool, words: tuple[str, ...], told: str) -> None:
    result = tool(*words, *(("--log-file", tool.log) if "--batch" not in words or "--upgrade" in words else ()))
    assert result.exit_code == 2
    assert told in result.output
    assert "Traceback" not in result.output


def test_a_cluster_must_be_there_and_the_only_one_or_named(tool: Tool) -> None:
    words = ("--upgrade", "1.35", "--log-file", tool.log)
    assert "there is no cluster to upgrade" in tool(*words).output
    tool.cluster("one")
    assert "default.kubeconfig" not in tool(*words).output
    result = tool(*words)
    assert result.exit_code == 1
    assert "one.kubeconfig" in result.output and "--data" in result.output
    tool.cluster("two", 10444)
    assert "there are several clusters to upgrade: one, two" in tool(*words).output
    assert "there is no cluster '..'" in tool(*words, "--cluster", "..").output


def test_item_169_an_upgrade_that_did_not_finish_is_resumed_and_says_where_it_is(tool: Tool) -> None:
    tool.cluster("default")
    journal = tool.data / "setup" / "default" / "journal.json"
    journal.parent.mkdir(parents=True)
    journal.write_text(
        '{"title":"t","operation":"upgrade","cluster":"default","began":"","pid":1,"answers":{},'
        '"stages":[{"name":"Upgrade node002","plugin":"kubernetes","state":"running"}]}'
    )
    result = tool("--upgrade", "1.35", "--log-file", tool.log)
    assert result.exit_code == 1
    assert "an earlier upgrade of the cluster default did not finish (at the stage Upgrade node002)" in result.output
    assert "--resume --cluster default" in result.output


def test_item_170_a_resumed_upgrade_takes_the_flag_that_continues_and_keeps_its_plan() -> None:
    member = Member("node001", True, Version(34, 4), Version(34, 4))
    answers = stages.answers(plan("default", Version(35, 4), [member]), Consent(unmanaged=True), 300.0)
    values = {
        "delete_emptydir_data": True,
        "delete_unmanaged_pods": False,
        "disable_eviction": False,
        "drain_timeout": 60.0,
    }
    after = upgrading.merged(answers, values)
    assert after["plan"] == answers["plan"]
    assert stages.consent_of(after) == Consent(emptydir=True, unmanaged=True)
    assert after["drain_timeout"] == 60.0
    with pytest.raises(errors.Invalid, match="--delete-emptydir-data is for an upgrade; what is resumed is a removal"):
        upgrading.refuse_flags(values, "removal")
