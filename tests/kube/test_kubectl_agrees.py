"""Kubeconfig files read by us and by kubectl: the same cluster, user and namespace must come out."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import programs

from bedplate.core import errors
from bedplate.kube import config

SEEDS = range(20)


@pytest.fixture(scope="module")
def kubectl() -> Path:
    return programs.built("kubectl")


def random_file(rng: random.Random) -> dict[str, Any]:
    """A file with some of three clusters, users and contexts, values that tell the files apart, and gaps."""

    def some() -> list[str]:
        return [name for name in ("a", "b", "c") if rng.random() < 0.6]

    def mark() -> str:
        return f"v{rng.randrange(10**6)}"

    def user() -> dict[str, Any]:
        # kubectl's view writes paths back relative to their file, so only an absolute one can be compared.
        key = rng.choice(["token", "tokenFile", "username"])
        credential = {key: f"/{mark()}" if key == "tokenFile" else mark()}
        return {**credential, **({"as": mark()} if rng.random() < 0.3 else {})}

    contexts = [
        {
            "cluster": rng.choice("abc"),
            "user": rng.choice("abc"),
            **({"namespace": mark()} if rng.random() < 0.5 else {}),
        }
        for _ in range(3)
    ]
    file: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": n, "cluster": {"server": f"https://{mark()}", "tls-server-name": mark()}} for n in some()
        ],
        "users": [{"name": name, "user": user()} for name in some()],
        "contexts": [{"name": name, "context": context} for name, context in zip("abc", contexts, strict=True)],
    }
    if rng.random() < 0.5:
        file["current-context"] = rng.choice("abc")
    return file


def as_kubectl_sees_it(kubectl: Path, kubeconfig: str) -> dict[str, Any] | None:
    """The parts of the minified view; None when kubectl refuses."""
    done = subprocess.run(
        [str(kubectl), "config", "view", "--minify", "--raw", "-o", "json"],
        env={**os.environ, "KUBECONFIG": kubeconfig},
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode != 0:
        return None
    view = json.loads(done.stdout)
    cluster = view["clusters"][0]["cluster"] if view.get("clusters") else None
    user = view["users"][0]["user"] if view.get("users") else None
    context = view["contexts"][0]["context"]
    if cluster is None or user is None:
        return None
    return {
        "server": cluster["server"],
        "server_name": cluster["tls-server-name"],
        "token": user.get("token", ""),
        "token_file": user.get("tokenFile", ""),
        "username": user.get("username", ""),
        "as": user.get("as", ""),
        "namespace": context.get("namespace", "default"),
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_kubectl_and_we_read_the_same_out_of_several_files(tmp_path: Path, kubectl: Path, seed: int) -> None:
    rng = random.Random(seed)
    paths = []
    for number in range(3):
        path = tmp_path / f"folder{number}" / "config"
        path.parent.mkdir()
        path.write_text(yaml.safe_dump(random_file(rng)))
        paths.append(str(path))
    paths.insert(rng.randrange(4), str(tmp_path / "missing"))
    kubeconfig = os.pathsep.join(paths)
    try:
        found = config.load(environ={"KUBECONFIG": kubeconfig})
    except errors.Invalid:
        assert as_kubectl_sees_it(kubectl, kubeconfig) is None
        return
    assert as_kubectl_sees_it(kubectl, kubeconfig) == {
        "server": found.server,
        "server_name": found.tls.server_name,
        "token": found.auth.token,
        "token_file": found.auth.token_file,
        "username": found.auth.username,
        "as": found.impersonate.user,
        "namespace": found.namespace,
    }
