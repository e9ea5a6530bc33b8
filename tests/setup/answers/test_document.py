"""Files with answers: every problem at its line, the same bytes after a round trip, and a schema that agrees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.setup.places import MINIMAL, answers

from bedplate.core import errors
from bedplate.setup.answers import declaration, document, jsonschema
from bedplate.setup.answers.kinds import Names

ROOT = Path(__file__).resolve().parents[3]


def problems(text: str) -> list[str]:
    with pytest.raises(errors.Invalid) as told:
        document.load(text, "answers.yaml")
    return [str(told.value), *told.value.problems]


def test_every_problem_is_told_at_once_with_key_and_line() -> None:
    text = """\
meta: {tool: another}
kubernetes:
  nmae: default
  version: latest
  networks:
    pod: 172.29.1.0/16
  nodes:
    masters: {nodes: [node001, node001]}
    etcd: [node001]
  proxy:
    port: yes
zzz: 1
"""
    told = problems(text)[1:]
    assert told == [
        "meta.tool (line 1): must be cm-kubernetes-setup, not 'another'",
        "kubernetes.nmae (line 3): unknown key; did you mean name?",
        "kubernetes.version (line 4): must be a version such as 1.35 or 1.35.4, not 'latest'",
        "kubernetes.networks.pod (line 6): must be an IPv4 network such as 10.150.0.0/16, with 8 to 22 netmask bits: "
        "172.29.1.0/16 has host bits set",
        "kubernetes.nodes.masters.nodes (line 8): has 'node001' twice",
        "kubernetes.nodes.etcd (line 9): must be a mapping, not list",
        "kubernetes.proxy.port (line 11): must be an integer from 0 to 65535, not True",
        "zzz (line 12): unknown key",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nkubernetes: [\n", "is not valid YAML: line 3"),
        ("a: 1\na: 2\n", "'a' is given twice"),
        ("", "has no answers"),
        ("- 1\n", "has no answers"),
        ("meta: {}\n", "kubernetes: this key is missing"),
        ("kubernetes: {}\n", "kubernetes.nodes.masters: this key is missing"),
        ("kubernetes: {nodes: {masters: {nodes: []}}}\n", "at least one control-plane node is needed"),
        ("kubernetes: {nodes: {masters: {nodes: [node001]}}, name: }\n", "kubernetes.name (line 1): must be"),
        ("kubernetes: {nodes: {masters: {nodes: [node001]}}, name: ..}\n", "kubernetes.name (line 1): must be"),
        ("kubernetes: 5\n", "kubernetes (line 1): must be a mapping"),
        ("\x00", "is not valid YAML"),
    ],
)
def test_what_is_wrong_is_said(text: str, expected: str) -> None:
    assert expected in "\n".join(problems(text))


def test_what_is_left_out_has_its_default() -> None:
    loaded = document.load(MINIMAL).values["kubernetes"]
    assert (loaded["name"], loaded["version"], loaded["cni"]) == ("default", declaration.minors()[0], "bridge")
    assert loaded["nodes"]["etcd"] == {"nodes": [], "categories": [], "head_nodes": []}


def test_saved_loaded_and_saved_again_is_identical() -> None:
    values = answers(name="second", proxy__port=10444, nodes__workers__categories=["default"])
    values["meta"] = {"tool": "cm-kubernetes-setup", "version": "1", "timestamp": "2026-01-01T00:00:00+00:00"}
    text = document.save(values)
    assert document.load(text).values == values
    assert document.save(document.load(text).values) == text


@given(st.text(max_size=60), st.booleans(), st.integers())
def test_any_value_is_accepted_or_refused_with_its_key(text: str, is_on: bool, number: int) -> None:
    for field in declaration.FIELDS:
        for value in (text, is_on, number, [text], None, {"a": text}):
            problem = field.kind.problem(value)
            assert isinstance(problem, str)
            assert "\n" not in problem or "\n" in text


def test_every_default_is_valid() -> None:
    assert document.problems(document.defaults()) == []


def test_the_text_of_a_value_gives_the_value_again() -> None:
    for field in declaration.FIELDS:
        assert field.kind.parse(field.kind.text(field.default)) == field.default, field.path


def test_every_question_has_help_and_a_screen() -> None:
    numbers = {screen.number for screen in declaration.SCREENS}
    for field in declaration.FIELDS:
        assert field.help.endswith("."), field.path
        assert field.screen in numbers, field.path


def test_the_schema_has_every_key_and_agrees_about_examples() -> None:
    import jsonschema_rs as validator

    checker = validator.Draft202012Validator(jsonschema.schema())
    assert checker.is_valid(yaml.safe_load(MINIMAL))
    assert checker.is_valid(yaml.safe_load(document.save(answers())))
    assert not checker.is_valid({"kubernetes": {"nmae": "x"}})
    assert not checker.is_valid({"kubernetes": {"proxy": {"port": 70000}}})


def test_the_shipped_schema_is_that_of_the_code() -> None:
    shipped = ROOT / "config" / "setup-answers.schema.json"
    assert json.loads(shipped.read_text()) == jsonschema.schema()


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda file: file.name)
def test_examples_are_valid(file: Path) -> None:
    document.load(file.read_bytes(), file.name)


def test_a_text_that_is_no_file_with_answers_is_told_in_a_hundred_problems() -> None:
    text = "kubernetes: {nodes: {masters: {nodes: [node001]}}}\n" + "".join(f"k{index}: 1\n" for index in range(2000))
    with pytest.raises(errors.Invalid, match="has 100 problems") as refused:
        document.load(text)
    assert len(refused.value.problems) == 100


def test_the_lines_of_what_an_alias_stands_for_are_taken_once() -> None:
    text = "a: &a {x: 1, y: {z: 1}}\n" + "".join(f"{name}: *a\n" for name in "bcdefgh")
    lines = document._lines(text)
    assert lines["a.y.z"] == 1 and lines["h"] == 8 and len(lines) == 8 + 3


def test_more_names_than_a_cluster_can_have_nodes_are_refused_uncounted() -> None:
    for names in (["n[1-99999]"], ["a[1-9000]", "b[1-9000]"], [f"n{index}" for index in range(10_001)]):
        assert "more than 10000" in Names().problem(names) or "at most 10000" in Names().problem(names), names[0]
    assert Names().problem([f"n{index}" for index in range(10_000)]) == ""
    assert Names("paths", False).problem(["x", "y", "x"]) == "has 'x' twice"
