"""What a manager shows of its configuration, and what it never does."""

from __future__ import annotations

import json

from bedplate.cloud.manager import options, serving
from bedplate.core import flags
from bedplate.program.options import shown


def test_every_flag_is_shown_by_group_in_camel_case() -> None:
    read = options.read(["--cloud-provider=oxide,nvidia-bmm", "--node-monitor-period=1m30s", "--v=3"])
    found = json.loads(json.dumps(serving.configz(read.options)))[serving.KEY]
    assert found["generic"]["cloudProvider"] == ["oxide", "nvidia-bmm"]
    assert found["generic"]["nodeMonitorPeriod"] == "1m30s"
    assert found["secureServing"]["securePort"] == 10258
    assert found["globals"]["v"] == 3
    assert sum(len(group) for group in found.values()) == len(flags.all_flags(options.GROUPS)) - 2


def test_what_stands_before_an_at_sign_in_an_address_is_not_shown() -> None:
    read = options.read(["--master=https://user:planted-secret@10.0.0.1:6443"])
    assert "planted-secret" not in json.dumps(serving.configz(read.options))
    assert dict(shown(read.options))["master"] == "https://…@10.0.0.1:6443"
