"""The table of what fuzz targets have done, from their logs.

    tests/fuzz/fuzz_table.py PATH...

PATH is a log of libFuzzer, or a folder in which all files NAME_fuzz.log, and all
test.log in folders NAME_fuzz, are. A line for each target, as Markdown; exits
with 1 if one of them has found something.
"""

import pathlib
import re
import sys

_HEAD = ("| target | executions | seconds | edges | inputs kept | found |\n"
         "|---|---|---|---|---|---|")


def target_of(path: pathlib.Path) -> str:
    """The target that a log is of."""
    return path.parent.name if path.name == "test.log" else path.stem


def logs_of(path: pathlib.Path) -> list[pathlib.Path]:
    """The logs in a folder; a file is one."""
    if path.is_file():
        return [path]
    logs = list(path.rglob("*_fuzz.log"))
    logs += [log for log in path.rglob("test.log")
             if log.parent.name.endswith("_fuzz")]
    return sorted(logs, key=target_of)


def row_of(target: str, log: str) -> str:
    """The line of a target, whose run may have been cut short."""
    done = re.search(r"Done (\d+) runs in (\d+) second", log)
    status = re.findall(r"^#(\d+)\s.*?cov: (\d+).*?corp: (\d+)/", log, re.M)
    executions = done[1] if done else status[-1][0] if status else "0"
    found = re.search(r"SUMMARY: (.*)", log)
    cells = [f"`{target}`", f"{int(executions):,}", done[2] if done else "cut",
             status[-1][1] if status else "?", status[-1][2] if status else "?",
             found[1] if found else "nothing" if done else "did not end"]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Prints the table of the arguments' logs."""
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    rows = [row_of(target_of(log), log.read_text(errors="replace"))
            for argument in sys.argv[1:]
            for log in logs_of(pathlib.Path(argument))]
    print("\n".join([_HEAD] + rows))
    return 0 if rows and all(row.endswith("| nothing |") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
