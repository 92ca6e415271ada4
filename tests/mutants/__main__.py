"""
Change the code in small ways, one at a time, and see whether the tests notice: `make mutants`.

Operators and runner are Cosmic Ray's. Everything happens in copies under .mutants, where results are kept, too: a run
that was stopped goes on, and what has survived is tried again when the tests that execute it have changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import sys
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path

from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import WorkItem, WorkResult

from . import report
from .copies import WORK
from .covering import SUITES, Traces, kept, test_files
from .sample import NUMBER, SEED, files, sample
from .sources import ROOT
from .trying import attempt, begin, trace_here


def main() -> int:
    """Try the mutants that have not been tried yet, and write down what is known of all of them."""
    parser = argparse.ArgumentParser(prog="make mutants", description=(__doc__ or "").strip())
    parser.add_argument("--processes", type=int, default=2, help="how many mutants are tried at a time")
    parser.add_argument("--first", type=int, default=NUMBER, help="try only so many of them")
    parser.add_argument("--report", action="store_true", help="try none: write the report anew")
    options = parser.parse_args()
    WORK.mkdir(exist_ok=True)
    with use_db(str(WORK / "session.sqlite")) as database:
        items = drawn(database)
        if not options.report:
            work(database, items[: options.first], options.processes)
        results = dict(database.results)
    unexplained = report.write([(item.mutations[0], results.get(item.job_id)) for item in items], SEED)
    return 1 if unexplained else 0


def drawn(database: WorkDB) -> list[WorkItem]:
    """The mutants; drawing them takes half a minute, so that is done once for every state of the files."""
    digest = hashlib.sha256(f"{SEED} {NUMBER} {version('cosmic-ray')}".encode())
    for file in [*files(), str(Path(sample.__code__.co_filename).relative_to(ROOT))]:
        digest.update((ROOT / file).read_bytes())
    place = WORK / f"sample.{digest.hexdigest()[:16]}.json"
    known = {item.job_id: item for item in database.work_items}
    if not place.exists():
        items = sample()
        database.add_work_items([item for item in items if item.job_id not in known])
        place.write_text(json.dumps([item.job_id for item in items]))
        return items
    return [known[job] for job in json.loads(place.read_text())]


def work(database: WorkDB, items: list[WorkItem], processes: int) -> None:
    """Run tests in as many copies as there are processes."""
    context = multiprocessing.get_context("spawn")
    copies: multiprocessing.Queue[str] = context.Queue()
    for number in range(processes):
        copies.put(str(WORK / f"copy-{number}"))
    with ProcessPoolExecutor(processes, context, begin, (copies,)) as pool:
        try:
            for wing in SUITES:
                of_wing = [item for item in items if item.mutations[0].module_path.parts[0] == wing]
                if of_wing:
                    try_all(pool, database, of_wing, trace_all(pool, wing))
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise


def trace_all(pool: ProcessPoolExecutor, wing: str) -> Traces:
    """Find out which tests execute what; only what has changed since the last time is run."""
    places = {name: kept(name) for name in test_files(wing)}
    missing = {pool.submit(trace_here, name, place): name for name, place in places.items() if not place.exists()}
    for number, future in enumerate(as_completed(missing), 1):
        future.result()
        print(f"traced {number} of {len(missing)} test files: {missing[future]}", flush=True)
    traces = Traces()
    for place in places.values():
        traces.add(json.loads(place.read_text()))
    left_out = sorted(set(traces.failed))
    print(f"{len(traces.seconds)} tests; skipped or not holding in a copy: {', '.join(left_out) or 'none'}", flush=True)
    return traces


def try_all(pool: ProcessPoolExecutor, database: WorkDB, items: list[WorkItem], traces: Traces) -> None:
    """Try what has no result, and what has survived other tests than those there are now."""
    done = dict(database.results)
    futures: dict[Future[WorkResult], WorkItem] = {}
    for item in items:
        (mutation,) = item.mutations
        chosen = traces.choose(str(mutation.module_path), mutation.start_pos[0])
        before = done.get(item.job_id)
        if before is None or not (before.is_killed or (before.output or "").startswith(chosen.key)):
            futures[pool.submit(attempt, mutation, chosen)] = item
    for number, future in enumerate(as_completed(futures), 1):
        result, item = future.result(), futures[future]
        database.set_result(item.job_id, result)
        (mutation,) = item.mutations
        what = f"{mutation.module_path}:{mutation.start_pos[0]} {mutation.operator_name.removeprefix('core/')}"
        print(f"{number} of {len(futures)}: {report.word(result):8} {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
