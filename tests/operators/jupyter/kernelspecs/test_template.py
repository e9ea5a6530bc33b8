"""Forms of kernels: getters, types, limits, and folders that are written whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bedplate.core import errors
from bedplate.operators.jupyter.kernelspecs import folders, render, template


def made(folder: Path, parameters: dict[str, Any], kernel_json: str = "", resource: str = "") -> template.Template:
    (folder / "templates").mkdir(parents=True, exist_ok=True)
    (folder / "meta.yaml").write_text(yaml.safe_dump({"display_name": "Mine", "parameters": parameters}))
    (folder / "kernel.json.j2").write_text(kernel_json)
    (folder / "templates/cmjk.yaml.j2").write_text(resource)
    return template.load(folder)


def parameter(type: str = "str", limits: dict[str, int] | None = None, **definition: Any) -> dict[str, Any]:
    return {"type": type, "definition": {"getter": "static", **definition}, "limits": limits or {}}


def test_a_shell_getter_is_run_and_its_first_line_is_the_default(tmp_path: Path) -> None:
    lines = ["echo first", "echo", "echo 'second one'"]
    chosen = made(tmp_path, {"p": parameter(getter="shell", exec=lines)})
    assert template.choices(chosen.meta.parameters["p"], template.run_shell) == ("first", ["first", "second one"])
    assert template.values(chosen, {}) == {"p": "first"}
    assert template.values(chosen, {"p": "another"}) == {"p": "another"}


def test_a_shell_getter_that_fails_is_told_with_its_words(tmp_path: Path) -> None:
    chosen = made(tmp_path, {"p": parameter(getter="shell", exec=["echo no luck >&2; exit 3"])})
    with pytest.raises(errors.Unavailable, match="exit code 3: no luck"):
        template.values(chosen, {})


@pytest.mark.parametrize(
    ("type", "default", "limits", "given", "problem"),
    [
        ("str", "", {"min_len": 1}, None, "must have at least 1 characters, has 0"),
        ("str", "", {"max_len": 3}, "four", "must have at most 3 characters, has 4"),
        ("list", [], {"max_len": 1}, "a,b", "must have at most 1 members, has 2"),
        ("list", [], {"min_len": 1}, "", "must have at least 1 members, has 0"),
        ("int", 1, {}, "one", "'one' must be an integer"),
        ("bool", True, {}, "yes", "'yes' must be true or false"),
        ("str", None, {}, None, "must be set"),
        ("int", "text", {}, None, "'text' must be of type int"),
    ],
)
def test_values_out_of_their_limits_are_refused(
    tmp_path: Path, type: str, default: Any, limits: dict[str, int], given: str | None, problem: str
) -> None:
    chosen = made(tmp_path, {"p": parameter(type, limits, default=default)})
    with pytest.raises(errors.Invalid) as caught:
        template.values(chosen, {} if given is None else {"p": given})
    assert caught.value.problems == (f"p: {problem}",)


def test_a_value_must_be_among_the_static_ones_and_a_parameter_of_the_template(tmp_path: Path) -> None:
    chosen = made(tmp_path, {"p": parameter("list", default=[], values=["a", "b"])})
    assert template.values(chosen, {"p": "a, b"}) == {"p": ["a", "b"]}
    with pytest.raises(errors.Invalid) as caught:
        template.values(chosen, {"p": "a,c", "q": "1"})
    assert caught.value.problems == ("q: not a parameter of this template", "p: 'c' is not one of a, b")


@pytest.mark.parametrize(
    "parameters",
    [
        {"p": parameter("float")},
        {"p": parameter(getter="python")},
        {"p": parameter(getter="shell")},
        {"p": parameter(exec=["true"])},
        {"P-1": parameter()},
        {"p": {"type": "str", "definition": {"getter": "static", "defualt": "x"}}},
        {"p": {"type": "str"}},
    ],
)
def test_a_form_that_is_wrong_is_refused_when_it_is_read(tmp_path: Path, parameters: dict[str, Any]) -> None:
    with pytest.raises(errors.Invalid, match=r"meta\.yaml"):
        made(tmp_path, parameters)


def test_a_folder_without_its_files_and_a_name_that_is_none_are_told(tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid, match=r"meta\.yaml cannot be read"):
        template.load(tmp_path)
    with pytest.raises(errors.NotFound, match="does not exist"):
        template.built_in("../../etc")


@pytest.mark.parametrize("text", ["{", "[]", "{{ unknown }}", "{{", '{"argv": "x", "language": "y"}'])
def test_a_kernelspec_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(errors.Invalid, match=r"kernel\.json\.j2"):
        render.kernel_json(made(tmp_path, {}, text), {})


@pytest.mark.parametrize(
    "text",
    [
        "- a",
        "kind: Pod",
        "{{ ''.__class__.__mro__ }}",
        "apiVersion: apps.brightcomputing.com/v1\nkind: CMJupyterKernel",
    ],
)
def test_a_resource_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(errors.Invalid, match=r"cmjk\.yaml\.j2"):
        render.resource_of(text, [], {}, render.SAMPLE)


def test_a_resource_that_the_operator_would_refuse_is_refused_beforehand() -> None:
    text = template.built_in(template.BUILT_IN[0]).resource + "    hostPID: true\n"
    values = template.values(template.built_in(template.BUILT_IN[0]), {"namespace": "n"})
    with pytest.raises(errors.Invalid, match=r"spec\.pod\.hostPID"):
        render.resource_of(text, ["x"], values, render.SAMPLE)


def test_a_kernelspec_is_replaced_only_when_asked_for(tmp_path: Path) -> None:
    target = folders.write(tmp_path / "kernels", "mine", {"kernel.json": "1", "templates/x": "2"}, False)
    assert (target / "templates/x").read_text() == "2"
    with pytest.raises(errors.AlreadyExists):
        folders.write(tmp_path / "kernels", "mine", {"kernel.json": "3"}, False)
    folders.write(tmp_path / "kernels", "mine", {"kernel.json": "3"}, True)
    assert [path.name for path in target.iterdir()] == ["kernel.json"]
    assert [path.name for path in (tmp_path / "kernels").iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "A", ".x", "a b"])
def test_a_kernelspec_cannot_be_written_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(errors.Invalid, match="kernel_name"):
        folders.write(tmp_path / "kernels", name, {"kernel.json": "1"}, True)
    assert not (tmp_path / "kernels").exists()
