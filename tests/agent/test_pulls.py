"""Container images on a node: what is run, which login is for which registry, and a password that only ctr reads."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bedplate.agent.pulls import Pulls, command, login_for, why_of
from bedplate.api.desired import Errand, Login

HUB = Login(server="docker.io", username="bob", password="hub")
OWN = Login(server="reg:5000", username="alice", password="s3cret")


@pytest.mark.parametrize(
    ("image", "login"),
    [
        ("nginx", HUB),
        ("library/nginx:1", HUB),
        ("reg:5000/a/b", OWN),
        ("reg/a/b", HUB),
        ("localhost/a", None),
        ("registry.k8s.io/pause:3.10.1", None),
    ],
)
def test_a_login_is_for_the_images_of_its_registry_alone(image: str, login: Login | None) -> None:
    assert login_for(image, (HUB, OWN)) is login


def test_a_password_is_in_no_command_line() -> None:
    words = command("nginx", HUB)
    assert words[-3:] == ("--user", "bob", "docker.io/library/nginx:latest")
    assert command("reg:5000/a@sha256:1", None)[-1] == "reg:5000/a@sha256:1"


def test_the_reason_is_that_of_ctr_without_the_password() -> None:
    assert why_of(0, "whatever", None) == ""
    assert why_of(1, "resolving\nctr: failed with s3cret: 401\nelapsed\n", OWN) == "failed with ********: 401"
    assert why_of(3, "", None) == "ctr ended with code 3"


CTR = """\
#!/bin/sh
for last; do :; done
case "$*" in *--user*)
    printf 'Password: '
    read -r secret
    [ "$secret" = s3cret ] || { echo 'ctr: 401'; exit 1; };;
esac
case "$last" in *missing*) echo "ctr: $last: not found"; exit 1;; esac
echo "$*" >> "$(dirname "$0")/pulled"
"""


async def _pulled(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *images: str, logins: tuple[Login, ...] = (), script: str = CTR
) -> Any:
    folder.mkdir(exist_ok=True)
    program = folder / "ctr"
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    told: list[str] = []

    async def tell(text: str) -> None:
        told.append(text)

    effects: Any = SimpleNamespace(root=SimpleNamespace(is_machine=True))
    done = await Pulls(effects).run(Errand(id="1", kind="pullimages", images=images, logins=logins), tell)
    assert len(told) == len(images)
    return done


async def test_item_103_one_image_that_is_missing_does_not_keep_the_others_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = await _pulled(tmp_path / "bin", monkeypatch, "a:1", "missing", "b:1")
    assert done.why == "missing: docker.io/library/missing:latest: not found"
    assert done.lines == ("a:1: pulled", "missing: docker.io/library/missing:latest: not found", "b:1: pulled")
    assert len((tmp_path / "bin" / "pulled").read_text().splitlines()) == 2


async def test_item_103_a_password_is_typed_into_the_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = await _pulled(tmp_path / "bin", monkeypatch, "reg:5000/a", "nginx", logins=(OWN,))
    assert (done.why, done.text) == ("", "2 images pulled")
    assert "s3cret" not in (tmp_path / "bin" / "pulled").read_text()
    wrong = Login(server="reg:5000", username="alice", password="nope")
    done = await _pulled(tmp_path / "bin", monkeypatch, "reg:5000/a", logins=(wrong,))
    assert done.why == "reg:5000/a: 401"


async def test_without_containerd_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    effects: Any = SimpleNamespace(root=SimpleNamespace(is_machine=True))

    async def tell(text: str) -> None:
        pass

    done = await Pulls(effects).run(Errand(id="1", kind="pullimages", images=("a",)), tell)
    assert done.why == "a: ctr: no such file or directory"
