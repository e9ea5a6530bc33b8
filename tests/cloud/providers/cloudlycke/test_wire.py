"""Addresses in a real network namespace: they come, are refreshed, go on demand and by themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="changing addresses needs root"),
]

_GROUND = """
ip link set lo up
ip link add eth0 type veth peer name other
ip link set eth0 up && ip link set other up
ip address add 192.168.20.11/24 dev eth0
ip address add 192.168.20.207/32 dev eth0
exec "$@"
"""
_STORY = """
import ipaddress, json, socket, subprocess, sys, time
from bedplate.cloud.providers.cloudlycke.wire import KernelWire

def listed():
    links = json.loads(subprocess.check_output(["ip", "-json", "-4", "address", "show", "dev", "eth0"]))
    return {each["local"]: [each["prefixlen"], each["label"]] for each in links[0]["addr_info"]}

def gone(address):
    end = time.monotonic() + 60
    while address in wire.held() and time.monotonic() < end:
        time.sleep(0.1)
    return address not in wire.held()

wire, told = KernelWire(), {}
ours, foreign = ipaddress.IPv4Address("192.168.20.200"), ipaddress.IPv4Address("192.168.20.207")
told["reaches"] = [wire.reaches(ours), wire.reaches(ipaddress.IPv4Address("10.0.0.1"))]
listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806))
listener.bind(("other", 0x0806))
listener.settimeout(30)
wire.hold(ours, 300)
wire.hold(ours, 300)
told["held"] = listed()
wire.announce(ours)
frame = listener.recv(100)
sender, asked = (str(ipaddress.IPv4Address(frame[at : at + 4])) for at in (28, 38))
told["announced"] = [frame[:6].hex(), sender, asked]
told["same sender"] = frame[6:12] == frame[22:28]
wire.release(ours)
wire.release(ours)
wire.release(foreign)
told["released"] = listed()
wire.hold(ours, 1)
told["gone by itself"] = gone(ours)
try:
    wire.hold(ipaddress.IPv4Address("10.0.0.1"), 3)
except Exception as err:
    told["elsewhere"] = str(err)
print(json.dumps(told))
"""


def _play(story: str, *around: str) -> subprocess.CompletedProcess[str]:
    command = ["unshare", "--net", "sh", "-ec", _GROUND, "sh", *around, sys.executable, "-c", story]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_addresses_come_and_go_and_only_ours_are_touched() -> None:
    done = _play(_STORY)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    own = {"192.168.20.11": [24, "eth0"], "192.168.20.207": [32, "eth0"]}
    assert told["reaches"] == [True, False]
    assert told["held"] == own | {"192.168.20.200": [32, "eth0:lycke"]}
    assert told["announced"] == ["ffffffffffff", "192.168.20.200", "192.168.20.200"]
    assert told["same sender"]
    assert told["released"] == own
    assert told["gone by itself"]
    assert "no interface of this machine" in told["elsewhere"]


def test_without_the_capability_the_error_names_it() -> None:
    story = """
import ipaddress
from bedplate.cloud.providers.cloudlycke.wire import KernelWire
try:
    KernelWire().hold(ipaddress.IPv4Address("192.168.20.200"), 3)
except Exception as err:
    print(err, err.hint)
"""
    done = _play(story, "setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")
    assert done.returncode == 0, done.stderr
    assert "could not carry 192.168.20.200" in done.stdout and "CAP_NET_ADMIN" in done.stdout
