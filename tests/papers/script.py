"""What the scripts of the papers have in common: flags, tables, claims.

A script is a module of tests.papers with

    NAME: str                                of its file of results
    TITLE: str                               of its section in README.md
    def cells(book, quick) -> dict[str, Cell]
    def series(book, quick) -> dict[str, list]
    def tables(cells, series) -> list[Table]
    CLAIMS: list[Claim]

Both cells() and series() ask the book for the runs that they need, and so run
them; tables and verdicts are made of what they return alone, so that they can be
made again from the file of results. Names of cells are paths ("mlp/lsw/16"),
under which expected.json has other numbers for the same settings.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import sys
import tempfile
import time
import types
from typing import Any, Callable, Mapping, Optional, Sequence

from tests.papers.cells import Cell
from tests.papers.results import Book, Result, RunFailedError, run_job

FOLDER = pathlib.Path(__file__).resolve().parent
RESULTS = FOLDER / "results"
SCRIPTS = ("adascale", "elastic", "adasum", "adacons", "momentum", "text")

HOLDS = "holds"
IN_PART = "holds in part"
DOES_NOT = "does not hold at this scale"
UNDECIDED = "undecided"
NOT_TRIED = "not tried"
VERDICTS = (HOLDS, IN_PART, DOES_NOT, UNDECIDED, NOT_TRIED)
Verdict = tuple[str, str]

Cells = Mapping[str, Cell]
Series = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Table:
    """Plain text in columns; the first column has the rows' names."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Claim:
    """What a paper says, and what this says of it.

    Attributes:
      paper: "AdaScale", "Adasum", "AdaCons".
      text: the claim, in words of our own.
      judge: (cells, series) -> (a verdict, the numbers that it rests on in half
        a sentence). None: the claim was not tried.
      needed: what it would take to say more.
    """

    paper: str
    text: str
    judge: Optional[Callable[[Cells, Series], Verdict]] = None
    needed: str = ""

    def verdict(self, cells: Cells, series: Series) -> Verdict:
        """Raises ValueError: judge() gave a word that is none of VERDICTS."""
        if self.judge is None:
            return NOT_TRIED, ""
        word, why = self.judge(cells, series)
        if word not in VERDICTS:
            raise ValueError(f'the verdict on "{self.text}" is "{word}"; '
                             "allowed: " + ", ".join(VERDICTS))
        return word, why


def each(found: Sequence[Optional[bool]]) -> str:
    """The verdict of a claim that says the same of several settings.

    Args:
      found: of each, whether it is so; None: undecided.
    Returns HOLDS or DOES_NOT where all are or none is so, and IN_PART where one
    is so and another not, or undecided; UNDECIDED where none is known to be so,
    and one may; NOT_TRIED where there is nothing to judge: the runs were too
    short.
    """
    if not found:
        return NOT_TRIED
    if any(found):
        return HOLDS if all(found) else IN_PART
    return UNDECIDED if None in found else DOES_NOT


def options(name: str, arguments: Sequence[str]) -> argparse.Namespace:
    """The flags; ends the process for --help and for a wrong one."""
    parser = argparse.ArgumentParser(
        prog=f"python -m tests.papers.{name}",
        description="Runs what is missing of the experiments, and prints their "
        "tables.")
    parser.add_argument("--quick", action="store_true",
                        help="tiny runs, into a temporary file: that it works")
    parser.add_argument("--fresh", action="store_true",
                        help="run again what the file has")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1,
                        metavar="N", help="runs at a time (%(default)s)")
    parser.add_argument("--results", type=pathlib.Path, metavar="FILE",
                        help="in place of tests/papers/results/NAME.json")
    found = parser.parse_args(arguments)
    if found.jobs < 1:
        parser.error(f"--jobs is {found.jobs}; allowed: 1 or more")
    return found


def table_text(table: Table) -> str:
    """In columns, for a terminal."""
    rows = [list(table.header)] + [list(row) for row in table.rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = [table.title, ""]
    lines += ["  ".join(word.ljust(width) for word, width in zip(row, widths))
              .rstrip() for row in rows]
    return "\n".join(lines + ([table.note] if table.note else []))


def report(module: types.ModuleType, book: Book, quick: bool) -> str:
    """Runs what is missing; the script's tables and verdicts."""
    cells, series = module.cells(book, quick), module.series(book, quick)
    parts = [table_text(table) for table in module.tables(cells, series)]
    lines = ["Tiny runs: neither numbers nor verdicts mean anything."
             ] if quick else []
    for claim in module.CLAIMS:
        word, why = claim.verdict(cells, series)
        lines.append(f"{word}: {claim.text}" + (f" ({why})" if why else ""))
    return "\n\n".join(parts + ["\n".join(lines)])


def environment() -> None:
    """For the processes of jobs, which inherit it; before any is started."""
    # Threads of processes that share two cores only wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # With the default poller the clients of one process wake each other.
    os.environ.setdefault("GRPC_POLL_STRATEGY", "poll")


def main(module: types.ModuleType, arguments: Sequence[str],
         call: Callable[[Any], Result] = run_job) -> int:
    """A script's main program: module is sys.modules["__main__"] there.

    Returns the process's status: 1 if a job broke.
    """
    found = options(module.NAME, arguments)
    environment()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="agg_papers_") as scratch:
        path = found.results or (
            pathlib.Path(scratch) / f"{module.NAME}.json" if found.quick
            else RESULTS / f"{module.NAME}.json")
        with Book(path, found.jobs, found.fresh, found.quick, call) as book:
            try:
                text = report(module, book, found.quick)
            except RunFailedError as error:
                sys.stderr.write(f"{module.NAME}: {error}\n")
                return 1
            if not found.quick:
                book.prune()
    seconds = time.monotonic() - began
    sys.stdout.write(f"{text}\n\n{module.NAME}: {seconds:.0f} s\n")
    sys.stdout.flush()
    return 0
