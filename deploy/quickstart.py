"""The quickstart behind deploy/quickstart.sh, which installs and builds."""

import dataclasses
import datetime
import json
import os
import pathlib
import platform
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from deploy import quickstart_chaos as chaos  # noqa: E402
from deploy import quickstart_job as job  # noqa: E402
from deploy import quickstart_monitoring as monitoring  # noqa: E402
from deploy import quickstart_options  # noqa: E402
from deploy import quickstart_view as view  # noqa: E402

TUNED = job.ROOT / "deploy" / "quickstart_tuned.json"
SEEDS = 3
SINGLE = "one worker"
# Label of a row, and what it changes of the run.
COMPARED = (
    (SINGLE, {"rule": "mean", "workers": 1}),
    ("sum", {"rule": "sum"}),
    ("mean", {"rule": "mean"}),
    ("adasum", {"rule": "adasum"}),
    ("adacons", {"rule": "adacons"}),
    ("mean + adascale", {"rule": "mean", "step_scale": "adascale"}),
)
SWEEPS = {
    SINGLE: (.02, .03, .05, .08, .1, .15),
    "sum": (.0015, .003, .00625, .0125, .01875, .025, .0375, .05),
    "mean": (.05, .1, .2, .4, .6, .8, 1.2, 1.6),
    "adasum": (.02, .03, .05, .08, .1, .15, .2, .4),
    "adacons": (.05, .1, .2, .4, .6, .8, 1.2, 1.6),
    "mean + adascale": (.02, .03, .05, .08, .1, .15, .2, .4),
}


def run_of(options, **changes):
    """The run that the options describe, with changes."""
    names = [field.name for field in dataclasses.fields(job.Run)]
    values = {name: getattr(options, name) for name in names
              if hasattr(options, name)}
    values.update(changes)
    return job.Run(**values)


def train(run, label, options, lines=0, on_shards=None,
          at_end=lambda entry: None):
    progress = view.Progress(label, run.rounds(), lines)
    if options.monitor and not on_shards:
        on_shards = options.monitor.watch

    def end(entry):
        progress.end(view.run_line(label, entry))
        at_end(entry)

    return job.train(run, options.bin, progress, on_shards, end)


def train_seeds(options, label, changes):
    """The entries of the row's seeds."""
    entries = []
    for i in range(SEEDS):
        run = run_of(options, seed=options.seed + i, **changes)
        entries.append(train(run, f"{label}, seed {run.seed}", options))
    return entries


def mean_accuracy(entries):
    return sum(entry["test_accuracy"] for entry in entries) / len(entries)


def setting(options):
    """What tuned learning rates depend on."""
    return {"workers": options.workers, "batch": options.batch,
            "epochs": options.epochs, "optimizer": options.optimizer,
            "wire_dtype": options.wire_dtype}


def read_tuned(options, path=TUNED):
    """The committed result of --tune if it is of these options, or None."""
    try:
        tuned = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return tuned if tuned["setting"] == setting(options) else None


def best_of(sweep):
    """(learning rate, accuracy) of the best; of equals the lowest rate."""
    return min(((rate, accuracy) for rate, accuracy in sweep),
               key=lambda point: (-point[1], point[0]))


def compare(options):
    entries, rows = [], []
    tuned = read_tuned(options)
    for label, changes in COMPARED:
        of_row = train_seeds(options, label, changes)
        entries += of_row
        best, best_accuracy = (None, None)
        if tuned:
            best, best_accuracy = best_of(tuned["sweeps"][label])
        rows.append((label, mean_accuracy(of_row), best, best_accuracy))
    print(f"\nTest accuracy, mean of {SEEDS} seeds; {options.workers} workers "
          f"with batch {options.batch}, {view.passes(options.epochs)}, "
          f"{options.shards} shards:\n")
    print(view.comparison_table(rows, options.learning_rate))
    print("\nThe first column re-tunes nothing: the learning rate that suits "
          "one worker, for all.")
    if tuned:
        print(f"The own best learning rates are from --tune of "
              f"{tuned['date']} ({tuned['machine']}).")
    else:
        print("Run with --tune for each rule's own best learning rate.")
    return {"runs": entries}


def tune(options):
    sweeps = {}
    for label, changes in COMPARED:
        sweeps[label] = []
        for rate in SWEEPS[label]:
            of_rate = train_seeds(options, f"{label}, lr {rate:g}",
                                  dict(changes, learning_rate=rate))
            sweeps[label].append((rate, mean_accuracy(of_rate)))
        print(view.sweep_table(f"{label}: mean accuracy of {SEEDS} seeds",
                               sweeps[label]))
    tuned = {"date": datetime.date.today().isoformat(),
             "machine": f"{os.cpu_count()} x {platform.machine()}, "
                        f"{platform.freedesktop_os_release()['PRETTY_NAME']}",
             "setting": setting(options),
             "seeds": [options.seed + i for i in range(SEEDS)],
             "sweeps": sweeps}
    TUNED.write_text(json.dumps(tuned, indent=1) + "\n")
    print(f"wrote {TUNED}")
    return tuned


def single(options):
    run = run_of(options)
    label = run.rule if run.step_scale == "none" else (
        f"{run.rule} + {run.step_scale}")

    def on_shards(addresses):
        options.monitor.watch(addresses)
        monitoring.announce_shards(addresses)

    def at_end(entry):
        print(view.summary(entry), flush=True)
        if options.monitor and stays(options):
            monitoring.stay("Prometheus and the shards stay")

    return train(run, label, options, 10,
                 on_shards if options.monitor else None, at_end)


def disturb(options):
    """Trains once in peace and once while shards are killed."""
    run = run_of(options, rule=options.rule or "adasum", replication="buddy")

    def end(label, kills):
        progress = view.Progress(label, run.rounds(), 10)
        entry, disturber = chaos.train(run, options.bin, kills, progress,
                                       progress.note)
        progress.end(view.run_line(label, entry))
        return entry, disturber.pauses

    peace, _ = end("undisturbed", 0)
    killed, pauses = end("with kills", options.kills)
    print(view.chaos_summary(peace, killed, pauses), flush=True)
    if peace["parameters_sha256"] != killed["parameters_sha256"]:
        raise job.RunError("the kills have changed the parameters")
    return {"undisturbed": peace, "with_kills": killed, "pauses": pauses}


def stays(options):
    return options.keep or sys.stdout.isatty()


def act(options):
    """Does what was asked for, with Prometheus beside it if wanted."""
    action = (tune if options.tune else disturb if options.chaos else
              single if options.rule else compare)
    options.monitor = None
    if not options.monitoring:
        return action(options)
    with monitoring.Monitoring() as options.monitor:
        options.monitor.announce()
        result = action(options)
        if not options.rule and stays(options):
            monitoring.stay("Prometheus stays")
    return result


def main(arguments):
    options = quickstart_options.parse(arguments)
    if options.check:
        return 0
    if options.bin is None:
        print("quickstart: start it as deploy/quickstart.sh, which builds",
              file=sys.stderr)
        return 2
    # These, too, must end what was started. (Prometheus alone would live on
    # after SIGHUP, the end of a terminal.)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    try:
        result = act(options)
        if options.json:
            pathlib.Path(options.json).write_text(
                json.dumps(result, indent=1) + "\n")
    except (job.RunError, OSError) as error:
        print(f"\nquickstart: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nquickstart: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
