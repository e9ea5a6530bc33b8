"""The topic `ipam` runs in tiny sizes beside whichever peers are there, gives its figures and leaves nothing behind."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
from tests import programs, servers

from bench import ipamload, ipamnodes

ROOT = pathlib.Path(__file__).parents[2]
ALWAYS = {
    "after a reboot: failed calls",
    "30 nodes join: status writes",
    "5 heartbeats: processor time",
    "ipam pools of 600 pods: processor time",
}
HOST_LOCAL = {"host-local: ADD, middle", "host-local: DEL, 99th percentile", "host-local: burst, 0 held"}
ORIGINAL = {
    "original: ADD, middle",
    "original: burst, 0 held",
    "original: burst, 64 held",
    "start to the first ADD, 0 held",
    "start to the first ADD, 0 held: processor time",
    "start to the first ADD, 64 held",
    "after a reboot: processor time of the daemon",
}


def has_original() -> bool:
    folder = os.environ.get("BEDPLATE_PEERS", "")
    names = ("ipam-node", "ipam-controller", "nv-ipam")
    return bool(folder) and all(pathlib.Path(folder, name).is_file() for name in names)


@pytest.mark.real
def test_topic_gives_its_figures_and_leaves_nothing(tmp_path: pathlib.Path, nv_ipam: pathlib.Path) -> None:
    for name, version in (("kube-apiserver", servers.KUBERNETES), ("etcd", servers.ETCD)):
        programs.built(name, version)
    programs.on_path("cc")
    output, work = tmp_path / "figures.json", tmp_path / "work"
    work.mkdir()
    command = [sys.executable, "-m", "bench", "ipam", "--quick", "--folder", str(work), "--output", str(output)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert list(work.iterdir()) == [], "the benchmark left files behind"
    found = json.loads(output.read_text())["ipam"]
    rows = {row["name"]: row for row in found["rows"]}
    wanted = ALWAYS | (HOST_LOCAL if ipamnodes.HOST_LOCAL.exists() else set()) | (ORIGINAL if has_original() else set())
    assert rows.keys() >= wanted
    assert rows["after a reboot: failed calls"]["bedplate"] == 0
    assert all(row["goal"] == "" for row in rows.values()), "tiny sizes must not be judged"
    if not has_original():
        assert any("BEDPLATE_PEERS" in note for note in found["notes"])


@pytest.mark.external
async def test_driver_tells_of_every_call_what_it_printed_and_how_it_ended(tmp_path: pathlib.Path) -> None:
    programs.on_path("cc")
    plugin = tmp_path / "plugin"
    plugin.write_text(
        '#!/bin/sh\necho "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_ARGS"\ncat\n[ $CNI_COMMAND = ADD ] || exit 3\n'
    )
    plugin.chmod(0o755)
    config = tmp_path / "config"
    config.write_text("what it\nreads")
    calls = [
        ipamload.Call("ADD" if number % 2 else "DEL", f"c{number}", "net0", "pod", "space", uid="u", at_s=0.01 * number)
        for number in range(20)
    ]
    found = await ipamload.drive(plugin, config, calls, 4, tmp_path)
    assert [one.call for one in found] == calls
    assert [one.code for one in found] == [0 if number % 2 else 3 for number in range(20)]
    assert found[1].printed == (
        "ADD c1 net0 IgnoreUnknown=1;K8S_POD_NAMESPACE=space;K8S_POD_NAME=pod;K8S_POD_UID=u what it reads"
    )
    assert all(one.wall_s > 0 and one.start_s >= one.call.at_s for one in found)
