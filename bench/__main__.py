"""`python -m bench [names] [--quick] [--full] [-o FILE]`: measure against the peers, in the same run.

In: names of topics (default: all). Out: a table per topic on standard output, with -o also JSON. Every topic works in
a temporary folder of its own, on the disk of --folder, and ends what it started.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import Sequence

from bedplate.core import errors
from bench import agents, apiload, ccm, head, images, informer, ipam, people, ready, report, setup, store

TOPICS = ("store", "ready", "apiserver", "informer", "ccm", "ipam", "head", "agents", "images", "people", "setup")


def tell(line: str) -> None:
    print(f"  … {line}", file=sys.stderr, flush=True)


async def measure(name: str, folder: pathlib.Path, options: argparse.Namespace) -> report.Topic:
    match name:
        case "store":
            return await store.run(folder, is_quick=options.quick, tell=tell)
        case "ready":
            return await ready.run(folder, is_quick=options.quick, is_full=options.full, tell=tell)
        case "apiserver":
            return await apiload.run(folder, is_quick=options.quick, tell=tell)
        case "ccm":
            return await ccm.run(folder, is_quick=options.quick, tell=tell)
        case "ipam":
            return await ipam.run(folder, is_quick=options.quick, tell=tell)
        case "agents":
            return await agents.run(folder, is_quick=options.quick, tell=tell)
        case "images":
            return await images.run(folder, is_quick=options.quick, tell=tell)
        case "people":
            return await people.run(folder, is_quick=options.quick, tell=tell)
        case "setup":
            return await setup.run(folder, is_quick=options.quick, tell=tell)
        case "head":
            return await head.run(folder, is_quick=options.quick, tell=tell)
        case _:
            return await informer.run(folder, is_quick=options.quick, tell=tell)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure against the peers, in the same run.")
    parser.add_argument("names", nargs="*", metavar="topic", help=f"{', '.join(TOPICS)}; all when none is named")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that everything runs, not how fast")
    parser.add_argument("--full", action="store_true", help="also time a lab (root)")
    parser.add_argument("--folder", help="on the disk to measure (default: the folder for temporary files)")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="also write the figures to this file, as JSON")
    parser.add_argument("--page", type=pathlib.Path, help="also put what is printed into this page of documentation")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(TOPICS))
    if unknown:
        parser.error(f"no topic is called {', '.join(unknown)}; there are {', '.join(TOPICS)}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    # SIGTERM gets the same cleaning up as Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    figures: dict[str, object] = {"machine": report.machine()}
    printed = [f"on {figures['machine']}"]
    print(printed[0])
    has_failed = False
    for name in options.names or TOPICS:
        try:
            topic = take(name, options)
        except errors.BedplateError as err:
            has_failed = True
            print(f"\n{name}: not measured: {err}")
            continue
        print("\n".join(topic.lines()), flush=True)
        printed += topic.lines()
        figures[name] = topic.document()
    printed += [
        "",
        "ratio: how many times better bedplate is (rates: more is better; times and memory: less is better)",
    ]
    print("\n".join(printed[-2:]))
    if options.output:
        options.output.write_text(json.dumps(figures, indent=2) + "\n")
    if options.page:
        options.page.write_text(report.filled(options.page.read_text(), printed))
    return 1 if has_failed else 0


def take(name: str, options: argparse.Namespace) -> report.Topic:
    """One topic, in a folder of its own."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix=f"bedplate-bench-{name}-", dir=options.folder) as folder:
        topic = asyncio.run(measure(name, pathlib.Path(folder), options))
    if options.quick:
        topic.rows = [dataclasses.replace(row, goal=0.0, limit=None) for row in topic.rows]
        topic.notes.append("tiny sizes: this shows that it runs, not how fast, so no goal is judged")
    tell(f"{name} took {time.perf_counter() - begin:.0f} s")
    return topic


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
