"""Makes the tables of tests/papers/README.md, and the plots.

    python -m tests.papers.report           from the files of tests/papers/results
    python -m tests.papers.report --check   says whether the page is what it makes

What has no complete set of results is named, and nothing is said of it. --check
compares the text, and for a plot the digest of its numbers that it carries:
another version of matplotlib draws other bytes. It needs scipy; the
plots need matplotlib.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import importlib
import json
import pathlib
import sys
from typing import Any, Mapping, Optional, Sequence

from tests.papers import findings, script
from tests.papers.results import Book, MissingError

PAGE = script.FOLDER / "README.md"
BEGIN = "<!-- made by deploy/papers.sh: begin -->"
END = "<!-- made by deploy/papers.sh: end -->"
# The plots of a script: file name, what it shows.
PLOTS = {
    "adascale": (
        ("adascale_accuracy", "test accuracy of AdaScale, linear scaling and one "
         "worker's rate, for 1 to 64 workers"),
        ("adascale_gain", "AdaScale's gain over training")),
    "adasum": (
        ("adasum_accuracy", "test accuracy of mean, sum and Adasum, for 1 to 64 "
         "workers"),
        ("adasum_orthogonality", "orthogonality of the workers' gradients and "
         "deltas over training, by layer")),
    "adacons": (
        ("adacons", "mean, AdaCons and the mean of unit gradients"),),
    "elastic": (),
    "momentum": (
        ("momentum", "weight of workers with random labels, and cosine with the "
         "mean of unit gradients, by AdaCons's beta"),),
    "text": (
        ("text", "held-out loss of a language model and of word2vec"),),
}


@dataclasses.dataclass
class Set:
    """The results of one script; without cells if they are not complete."""

    name: str
    title: str
    missing: str = ""
    cells: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    series: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tables: Sequence[script.Table] = ()
    claims: Sequence[script.Claim] = ()
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    runs: int = 0
    seconds: float = 0.0

    def digest(self) -> str:
        """Of all numbers that a plot can show."""
        numbers = {"cells": {name: [cell.values, cell.failed]
                             for name, cell in self.cells.items()},
                   "series": dict(self.series)}
        text = json.dumps(numbers, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_set(name: str, folder: pathlib.Path, quick: bool = False) -> Set:
    """What a script makes of its file, with nothing run."""
    module: Any = importlib.import_module("tests.papers." + name)
    found = Set(name, module.TITLE, claims=module.CLAIMS)
    path = folder / f"{name}.json"
    if not path.exists():
        found.missing = "has not been run"
        return found
    with Book(path, jobs=0) as book:
        try:
            found.cells = module.cells(book, quick)
            found.series = module.series(book, quick)
        except MissingError:
            found.missing = "is not complete"
            found.cells = found.series = {}
            return found
        found.tables = module.tables(found.cells, found.series)
        found.versions = book.versions
        found.runs = len(book.asked)
        found.seconds = sum(result.get("seconds") or 0
                            for _, result in book.asked)
    return found


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) \
        + " |"


def markdown(table: script.Table) -> list[str]:
    lines = [f"**{table.title}**", "", _row(table.header),
             _row(["---"] * len(table.header))]
    lines += [_row(row) for row in table.rows]
    return lines + ["", table.note, ""] if table.note else lines + [""]


def state_lines(sets: Sequence[Set]) -> list[str]:
    """What was run, where and with what."""
    lines = []
    for found in sets:
        if found.missing:
            lines.append(f"- `{found.name}`: the full set {found.missing} here; "
                         "this page says nothing of it.")
            continue
        made = found.versions
        lines.append(
            f"- `{found.name}`: {found.runs} runs, {found.seconds / 60:.0f} "
            f"minutes of one job after the other; {made['date']}, "
            f"{made['cpu']}, agg_server {made['agg_server']}, torch "
            f"{made['torch']}, numpy {made['numpy']}, Python {made['python']}.")
    return lines + [""]


def claim_lines(sets: Sequence[Set]) -> list[str]:
    """A row for each claim; of an incomplete set nothing is judged."""
    rows = []
    for found in sets:
        for claim in found.claims:
            if claim.judge is not None and found.missing:
                verdict, why = script.NOT_TRIED, f"the set {found.missing}"
            else:
                verdict, why = claim.verdict(found.cells, found.series)
            rows.append([claim.paper, claim.text, f"**{verdict}**",
                         "; ".join(filter(None, (
                             why, claim.needed and "Needed: " + claim.needed)))])
    papers = sorted({row[0] for row in rows})
    # By paper; within one as the scripts say them.
    rows.sort(key=lambda row: papers.index(row[0]))
    return ["## What holds", "",
            _row(["paper", "claim", "verdict", "numbers, and what is needed"]),
            _row(["---"] * 4), *(_row(row) for row in rows), ""]


def difference_lines(sets: Sequence[Set], expected: Mapping[str, Any]
                     ) -> list[str]:
    """What differs from the simulation's numbers, and why."""
    rows, both = [], 0
    for found in sets:
        if found.missing:
            continue
        both += findings.compared(found.cells, expected[found.name])
        for it in findings.findings(found.cells, expected[found.name]):
            why = expected["explained"][found.name].get(it.cell, "")
            rows.append([f"`{found.name}` {it.cell}", it.ours, it.theirs,
                         it.apart, why])
    lines = ["## Against a simulation", "",
             f"{both} numbers are those of a simulation, too; {len(rows)} differ "
             "by more than three standard errors, or in what fails"
             + (":" if rows else "."), ""]
    if rows:
        lines += [_row(["", "here", "simulation", "apart", "why"]),
                  _row(["---"] * 5), *(_row(row) for row in rows), ""]
    return lines


def section_lines(found: Set) -> list[str]:
    lines = [f"## {found.title}", ""]
    if found.missing:
        return lines + [f"The full set {found.missing}: "
                        f"`deploy/papers.sh {found.name}` does.", ""]
    for name, text in PLOTS[found.name]:
        lines += [f"![{text}](figures/{name}.svg)", ""]
    for table in found.tables:
        lines += markdown(table)
    return lines


def body(sets: Sequence[Set], expected: Mapping[str, Any]) -> str:
    """What stands between the markers."""
    lines = ["", "## What was run", "", *state_lines(sets), *claim_lines(sets)]
    for found in sets:
        lines += section_lines(found)
    return "\n".join(lines + difference_lines(sets, expected))


def page(old: str, new_body: str) -> str:
    """Raises ValueError: the page has not one pair of markers."""
    if old.count(BEGIN) != 1 or old.count(END) != 1:
        raise ValueError(f"the page has not one {BEGIN} and one {END}")
    before, rest = old.split(BEGIN)
    return before + BEGIN + "\n" + new_body + END + rest.split(END)[1]


def carried_digest(path: pathlib.Path) -> Optional[str]:
    """Of the numbers that a plot was drawn of; None: there is none."""
    if not path.exists():
        return None
    _, mark, rest = path.read_text("utf-8").partition("numbers ")
    return rest[:16] if mark else None


def stale_plots(sets: Sequence[Set], folder: pathlib.Path) -> list[str]:
    """Those that were drawn of other numbers, or are not there."""
    return [name for found in sets if not found.missing
            for name, _ in PLOTS[found.name]
            if carried_digest(folder / f"{name}.svg") != found.digest()]


def check(new: str, sets: Sequence[Set], path: pathlib.Path,
          plots_folder: pathlib.Path) -> list[str]:
    """Lines on what is not as it should be."""
    old = path.read_text("utf-8")
    said = list(difflib.unified_diff(old.splitlines(), new.splitlines(),
                                     str(path), "what the results say",
                                     lineterm=""))
    return said + [f"{name}.svg shows other numbers"
                   for name in stale_plots(sets, plots_folder)]


def main(arguments: Sequence[str]) -> int:
    if list(arguments) not in ([], ["--check"]):
        sys.stderr.write("usage: python -m tests.papers.report [--check]\n")
        return 2
    sets = [read_set(name, script.RESULTS) for name in script.SCRIPTS]
    new = page(PAGE.read_text("utf-8"), body(sets, findings.load()))
    plots_folder = script.FOLDER / "figures"
    if not arguments:
        # Before the page is written: without matplotlib it stays as it was.
        # pylint: disable=import-outside-toplevel
        from tests.papers import plots
    else:
        said = check(new, sets, PAGE, plots_folder)
        if said:
            sys.stdout.write("\n".join(said) + "\nmend with deploy/papers.sh\n")
        return 1 if said else 0
    PAGE.write_text(new, "utf-8")
    plots_folder.mkdir(exist_ok=True)
    for found in sets:
        if not found.missing:
            plots.draw(found.name, found.cells, found.series, found.digest(),
                       plots_folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
