"""The page of the configuration files names every key that the providers read, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bedplate.cloud.providers.cloudlycke import config as cloudlycke
from bedplate.cloud.providers.nvidia_bmm import config as nvidia_bmm
from bedplate.cloud.providers.nvidia_bmm.settings import Reader
from bedplate.cloud.providers.oxide import config as oxide

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/cloud-config.md"


def keys_on_page(title: str) -> set[str]:
    section = PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    first_cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {key for cell in first_cells for key in re.findall(r"`([^`]+)`", cell)}


def keys_of_bmm() -> set[str]:
    reader = Reader({}, {})
    nvidia_bmm._read(reader, None)
    return reader._known


def keys_of_oxide() -> set[str]:
    top = set(oxide._File.__struct_encode_fields__) - {"loadBalancer"}
    return top | {f"loadBalancer.{key}" for key in oxide._LoadBalancer.__struct_encode_fields__}


def keys_of_cloudlycke() -> set[str]:
    top = {"instances", *cloudlycke._KINDS} - {"loadBalancer"}
    balancer = {f"loadBalancer.{key}" for key in cloudlycke.LoadBalancer.__struct_encode_fields__}
    return top | balancer | set(cloudlycke.Instance.__struct_encode_fields__)


@pytest.mark.parametrize(
    ("title", "keys"),
    [("NVIDIA BMM", keys_of_bmm()), ("Oxide", keys_of_oxide()), ("Cloudlycke", keys_of_cloudlycke())],
    ids=["nvidia-bmm", "oxide", "cloudlycke"],
)
def test_the_page_names_every_key_of_the_file_and_no_other(title: str, keys: set[str]) -> None:
    assert keys_on_page(title) == keys
