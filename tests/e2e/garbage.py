"""Eight workers train the digits, and one of them pushes garbage.

    garbage.py --bin=BAZEL_BIN [--seeds=2] [--only=REGEX]
               [--batch=36] [--epochs=40]

Trains with real processes (2 shards) for each way of combining and each kind of
garbage (garbage_worker.cc), and prints the test accuracy as the table of
deploy/docs/rules.md. Rank 3 is the wrong one. All start at the same
weights and see the same batches.
"""

import argparse
import math
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent))

from deploy import quickstart_job as job  # noqa: E402

WRONG_RANK = 3
OUTLIERS = 'outliers { max_deviations: 6 action: "exclude" }'
# Name -> what of a run it sets.
COMBINATIONS = {
    "mean": {},
    "adasum": {"rule": "adasum", "learning_rate": 0.05},
    "unit_mean": {"rule": "unit_mean", "learning_rate": 0.3},
    "krum": {"rule": "krum", "rule_options": "krum { byzantine_workers: 1 }"},
    "multi_krum": {"rule": "multi_krum"},
    "geometric_median": {"rule": "geometric_median"},
    "mean, outliers excluded": {"more": OUTLIERS},
}
# Name -> the worker's --garbage; "": all are honest.
GARBAGE = {"none": "", "noise x 100": "noise", "flipped x 10": "flip",
           "noise x 1": "matched", "flipped x 1": "turn"}


def train(bin_folder, combination, garbage, seed, **more):
    """The run's JSON entry; `more` are fields of job.Run."""
    programs = {}
    if garbage:
        worker = pathlib.Path(bin_folder) / "tests/e2e/garbage_worker"
        programs[WRONG_RANK] = [worker, f"--garbage={garbage}"]
    fields = {"workers": 8, "batch": 36, "epochs": 40, "learning_rate": 0.2,
              "seed": seed, "programs": programs,
              **COMBINATIONS[combination], **more}
    return job.train(job.Run(**fields), bin_folder)


def has_diverged(error):
    """Whether the job itself ended for its numbers, by a RunError's text."""
    return "(max_skipped_rounds)" in str(error)


def accuracy(bin_folder, combination, garbage, seed, **more):
    """On the test's digits; nan if the job diverged. Raises RunError."""
    try:
        entry = train(bin_folder, combination, garbage, seed, **more)
        found = entry["test_accuracy"]
    except job.RunError as error:
        if not has_diverged(error):
            raise
        print(f"{combination}, {garbage}: {error}", file=sys.stderr)
        found = None
    return float("nan") if found is None else found


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", required=True)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--batch", type=int, default=36)
    parser.add_argument("--epochs", type=int, default=40)
    options = parser.parse_args(argv)
    print("| combined by | " + " | ".join(GARBAGE) + " |")
    print("|---|" + "---|" * len(GARBAGE))
    for combination in COMBINATIONS:
        if not re.search(options.only, combination):
            continue
        means = [statistics.fmean(
            accuracy(options.bin, combination, garbage, seed,
                     batch=options.batch, epochs=options.epochs)
            for seed in range(options.seeds)) for garbage in GARBAGE.values()]
        print(f"| {combination} | " +
              " | ".join("diverged" if math.isnan(mean) else f"{mean:.3f}"
                         for mean in means) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
