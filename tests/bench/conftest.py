"""The benchmarks lie beside the package and are not installed: they are found from the root of the checkout."""

from __future__ import annotations

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[2]))
