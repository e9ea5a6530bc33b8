"""A deployment through the daemon is the tool itself: real programs, up to the stage that needs agents."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

from tests.apps import headprograms
from tests.apps.headprograms import Served
from tests.waiting import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "three-nodes.yaml"


def ask(served: Served, way: str, body: bytes | None = None) -> Any:
    token = (served.data / "admin.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/yaml"}
    request = urllib.request.Request(f"{served.url}/api/v1/{way}", body, headers)
    with urllib.request.urlopen(request, context=headprograms.trust(served.data)) as response:
        return json.loads(response.read())


def test_item_216_a_run_outlives_the_daemon_that_started_it_and_the_next_one_tells_how_it_ended(tmp_path: Path) -> None:
    data = headprograms.init(tmp_path / "data", "--nodes", "3")
    with headprograms.served(data) as served:
        assert ask(served, "setup-form", EXAMPLE.read_bytes())["problems"] == []
        run = ask(served, "setups", EXAMPLE.read_bytes())
        assert (run["status"], run["by"]) == ("starting", "admin")
        assert os.getsid(run["process"]) == run["process"]
        assert b"--served" in Path(f"/proc/{run['process']}/cmdline").read_bytes().split(b"\0")
        served.kill()
    with headprograms.served(data) as served:
        wait_until(lambda: "process" not in ask(served, "setups/default"), "the run ends")
        run = ask(served, "setups/default")
        assert run["by"] == "admin" and run["status"] in ("failed", "refused")
        # With the daemon away the tool waits for the next one: it never opens the folder itself.
        assert run["trouble"]
        assert json.loads((data / "setup" / "default" / "start.json").read_bytes())["action"] == "deploy"
    assert (data / "setup" / "cm-kubernetes-setup.log").exists()
