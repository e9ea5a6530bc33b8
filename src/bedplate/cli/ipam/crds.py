"""The custom resource definitions of the pools, as they are deployed.

In: the files of `deploy/crds`: from the checkout, or, in an installed package, the copies beside the code. Out: their
documents. There is one text of them; nothing here changes it.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from bedplate.core import errors

__all__ = ["documents"]

FILES = ("nv-ipam.nvidia.com_ippools.yaml", "nv-ipam.nvidia.com_cidrpools.yaml")
# Where the wheel has them; and where a checkout has them, seen from this file.
_PACKAGED = ("ipam", "crds")
_CHECKOUT = Path(__file__).resolve().parents[4] / "deploy" / "crds"


def documents() -> list[dict[str, Any]]:
    """The definitions of IPPool and CIDRPool."""
    packaged = resources.files("bedplate").joinpath(*_PACKAGED)
    texts = []
    for name in FILES:
        place = packaged.joinpath(name) if packaged.joinpath(name).is_file() else _CHECKOUT / name
        try:
            texts.append(yaml.safe_load(place.read_text(encoding="utf-8")))
        except OSError as err:
            raise errors.Invalid(f"the definition {name} is not installed", hint="install bedplate again") from err
    return texts
