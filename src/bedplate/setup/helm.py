"""What `helm template` makes of a chart that is a file of this machine: no repository is asked.

In: a chart, its values, and which Kubernetes it is for. Out: the objects as YAML; `Invalid` with what helm said. The
program is that of the cache folder, or the one on PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bedplate.core import errors
from bedplate.lab import binaries

__all__ = ["Chart", "about", "find", "template"]

_TIMEOUT_S = 120.0
_SHOWN = 400


@dataclass(frozen=True, slots=True)
class Chart:
    """A release to be made of a chart. `values` are those of the tool, over which `values_file` and `options` go."""

    release: str
    namespace: str
    path: str
    values: Mapping[str, Any] = field(default_factory=dict)
    values_file: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def find(environ: Mapping[str, str] | None = None) -> Path:
    """The program. Raises `Unavailable` where there is none."""
    environ = os.environ if environ is None else environ
    path = binaries.cached("helm", environ=environ)
    if path is None:
        where = shutil.which("helm", path=environ.get("PATH", os.defpath))
        path = Path(where) if where is not None else None
    if path is None:
        raise errors.Unavailable(
            "charts are rendered by helm, which is neither on PATH nor in the cache folder",
            hint="install helm 3, or build it: bedplate binaries get helm",
        )
    return path


def about(program: Path, path: str) -> dict[str, Any]:
    """What a chart says of itself: name, version, appVersion. Raises `Invalid`."""
    try:
        content = yaml.safe_load(_run([str(program), "show", "chart", path]))
    except yaml.YAMLError as err:
        raise errors.Invalid(f"{path} says nothing of itself: {' '.join(str(err).split())}") from err
    return content if isinstance(content, dict) else {}


def template(program: Path, chart: Chart, kubernetes: str) -> str:
    """The objects of a chart, with its definitions, for a release of Kubernetes. Raises `Invalid`."""
    command = [str(program), "template", chart.release, chart.path, f"--namespace={chart.namespace}", "--include-crds"]
    command += [f"--kube-version=v{kubernetes.removeprefix('v')}"]
    with tempfile.TemporaryDirectory(prefix="bedplate-helm-") as folder:
        if chart.values:
            file = Path(folder, "values.yaml")
            file.write_text(yaml.safe_dump(dict(chart.values)))
            command.append(f"--values={file}")
        if chart.values_file:
            command.append(f"--values={chart.values_file}")
        for key, value in chart.options.items():
            command.append(f"--set-json={key}={json.dumps(value)}")
        return _run(command)


def _run(command: list[str]) -> str:
    """Without the settings and repositories of whoever calls."""
    with tempfile.TemporaryDirectory(prefix="bedplate-helm-") as home:
        environ = {name: text for name, text in os.environ.items() if not name.startswith("HELM_")}
        environ |= dict.fromkeys(("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"), home)
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, env=environ, errors="replace"
            )
        except subprocess.TimeoutExpired as err:
            raise errors.Invalid(f"helm did not end within {_TIMEOUT_S:g} s") from err
        except OSError as err:
            raise errors.Unavailable(f"{command[0]} cannot be run: {err.strerror}") from err
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        text = " ".join(lines).removeprefix("Error: ").strip() or f"exit code {done.returncode}"
        raise errors.Invalid(f"helm refuses the chart: {text[:_SHOWN]}")
    return done.stdout
