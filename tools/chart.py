"""Packages a chart into dist/ and pushes it, with the helm of the cache where none is installed.

    python tools/chart.py package CHART
    python tools/chart.py push CHART oci://REGISTRY/FOLDER [helm's own flags]

In: charts/CHART with the version of its Chart.yaml. Out: dist/CHART-VERSION.tgz, and that in the registry.
"""

from __future__ import annotations

import subprocess
import sys

import manifest

from bedplate.core import errors

DIST = manifest.ROOT / "dist"


def main(what: str, chart: str, *rest: str) -> int:
    helm = manifest.helm()
    if what == "package":
        command = [helm, "package", str(manifest.CHARTS / chart), "--destination", str(DIST)]
    elif what == "push":
        command = [helm, "push", str(DIST / f"{chart}-{manifest.version()}.tgz"), *rest]
    else:
        sys.exit(__doc__)
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        sys.exit(main(*sys.argv[1:]))
    except errors.BedplateError as err:
        sys.exit(f"chart: {err}")
