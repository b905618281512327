"""An operator's drill: bad things are done to real jobs, and a real Prometheus
and Alertmanager have to tell who is on call about each, once, and to stay
silent about what is no trouble.

    drill.py --bin=BAZEL_BIN [--only=SCENE,..] [--scale=30] [--parallel=6]
             [--keep_logs]

Each scene (drill_scenes.py) is a job of its own. All are watched by one
Prometheus with the rules, and one Alertmanager with the example configuration,
of deploy/prometheus, in which every time is --scale times shorter. A scene
waits until what it expects has been told, holds for some minutes of the rules,
undoes what it did, and waits until all alerts have ended. Ends with a table,
the alerts that no scene makes fire, and `N passed, N failed`.
"""

import argparse
import collections
import concurrent.futures
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent))

from deploy import quickstart_job as job  # noqa: E402
from tests.e2e import drill_job, drill_prometheus, drill_scenes  # noqa: E402

# A shard that answers too late ends an alert for a moment.
BLINK_SECONDS = 5
PAGER = "pager"  # of alertmanager.yml: who is woken


def named(names):
    return ", ".join(sorted(names)) or "none"


class Play:
    """One scene, played once."""

    def __init__(self, scene, watch, minute, bin_folder, folder):
        self.scene = scene(watch, minute)
        self.watch = watch
        self.minute = minute
        # No range of the rules is longer than an hour.
        self.patience = drill_job.WAIT + 60 * minute
        folder.mkdir()
        self.job = self.scene.make(bin_folder, folder)
        self.began = time.time()

    def run(self):
        """Raises DrillError, job.RunError."""
        scene = self.scene
        try:
            scene.begin(self.job)
            self.check("before anything is done", ())
            scene.do(self.job)
            wanted = {*scene.fires, *scene.silent}
            drill_job.eventually(
                f"{named(wanted)} fire",
                lambda: wanted <= self.look().keys(), self.patience)
            drill_job.eventually(
                f"{named(scene.fires)} get through",
                lambda: set(scene.fires) <= {name for _, name in self.told()})
            self.hold(wanted)
            self.check("while it lasts", wanted)
            scene.undo(self.job)
            drill_job.eventually(
                "all alerts end",
                lambda: not self.look().keys() - {*scene.may},
                self.patience)
            # A shard that is back keeps nothing back any more, and its job
            # still recovers for a moment.
            self.check("to its end", wanted,
                       released={*scene.silent, *scene.may})
        finally:
            scene.cleanup.close()
            self.watch.watch(self.job.name, [])
            self.job.stop()

    def hold(self, wanted):
        """Waits for as long as the scene says. Raises DrillError: an alert has
        ended meanwhile, and not for a missed scrape."""
        now = seen = time.monotonic()
        until = now + self.scene.minutes * self.minute
        while now < until:
            now = time.monotonic()
            missing = wanted - self.look().keys()
            if not missing:
                seen = now
            elif now > seen + BLINK_SECONDS:
                raise drill_job.DrillError(
                    f"{named(missing)} ended before anything was undone")
            time.sleep(0.2)

    def look(self):
        """Returns what fires now. Raises DrillError: a text cannot be read."""
        self.watch.check()
        found = self.watch.firing(self.scene.selector())
        for name, alerts in found.items():
            for text in (text for texts in alerts for text in texts.values()):
                if "<no value>" in text or "<error" in text:
                    raise drill_job.DrillError(f"{name} says: {text}")
        return found

    def told(self):
        return self.watch.pager.told(self.scene.selector())

    def check(self, when, wanted, released=()):
        """Compares what has fired and what has been told so far with the
        scene. `released`: what may be told, too. Raises DrillError."""
        scene, severities = self.scene, self.watch.severities
        fired = self.watch.ever_fired(scene.selector(), self.began)
        beside = fired - {*wanted, *scene.may}
        if beside:
            raise drill_job.DrillError(f"{when} also fired {named(beside)}")
        for receiver, name in sorted(self.told()):
            critical = severities[name] == "critical"
            told = {*scene.fires, *released}
            if name not in told and (critical or name not in scene.may):
                raise drill_job.DrillError(
                    f"{when} {name} got through Alertmanager")
            if critical != (receiver == PAGER):
                raise drill_job.DrillError(
                    f"{name} is {severities[name]} and went to {receiver}")


Result = collections.namedtuple("Result", "scene seconds wrong skipped")


def play(scene, watch, options, folder):
    """Plays a scene, whatever comes of it. Raises nothing."""
    began = time.monotonic()
    wrong = ""
    skipped = scene.impossible()
    if skipped:
        print(f"{scene.name()}: skipped: {skipped}", flush=True)
        return Result(scene, 0, "", skipped)
    try:
        Play(scene, watch, 60 / options.scale, options.bin,
             folder / scene.name()).run()
    except (drill_job.DrillError, job.RunError, OSError,
            subprocess.SubprocessError) as error:
        wrong = str(error)
    except Exception:  # pylint: disable=broad-except
        wrong = traceback.format_exc()
    seconds = time.monotonic() - began
    print(f"{scene.name()}: {wrong or 'as it should be'} ({seconds:.0f} s)",
          flush=True)
    return Result(scene, seconds, wrong, "")


def table(results, severities):
    lines = [f"{'scene':<34}{'':8}{'s':>4}  who is told"]
    for scene, seconds, wrong, skipped in results:
        told = ", ".join(f"{name} ({severities.get(name, 'unknown')})"
                         for name in scene.fires) or "nobody"
        if scene.silent:
            told += f"; kept back: {', '.join(scene.silent)}"
        came = "FAILED" if wrong else "skipped" if skipped else "passed"
        lines.append(f"{scene.name():<34}{came:8}{seconds:>4.0f}  {told}")
        lines.append(f"{'':48}{scene.__doc__}")
        if wrong or skipped:
            lines.append(f"{'':48}{came}: {wrong or skipped}")
    return "\n".join(lines)


def make_parser():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n", maxsplit=1)[0], allow_abbrev=False)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--only", default="", help="scenes, with commas")
    parser.add_argument("--scale", type=float, default=30,
                        help="how many times shorter; above 30 the servers' "
                        "own seconds outlast the rules' minutes")
    parser.add_argument("--parallel", type=int, default=6,
                        help="scenes at a time")
    parser.add_argument("--keep_logs", action="store_true")
    return parser


def main(arguments):
    options = make_parser().parse_args(arguments)
    known = {scene.name(): scene for scene in drill_scenes.ALL}
    wanted = options.only.split(",") if options.only else list(known)
    for name in wanted:
        if name not in known:
            print(f"--only={name}; allowed: {', '.join(known)}",
                  file=sys.stderr)
            return 2
    if drill_prometheus.missing():
        print(f"the drill is skipped: {drill_prometheus.missing()}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    folder = pathlib.Path(tempfile.mkdtemp(prefix="agg_drill_"))
    keep = True
    try:
        ca = folder / "ca"
        subprocess.run(["bash", job.ROOT / "deploy" / "test_ca.sh", ca],
                       check=True, stdout=subprocess.DEVNULL)
        with drill_prometheus.Watch(
                folder, options.scale, ca,
                [scene.name() for scene in drill_scenes.ALL if scene.expected]
        ) as watch:
            with concurrent.futures.ThreadPoolExecutor(
                    options.parallel) as pool:
                results = list(pool.map(
                    lambda name: play(known[name], watch, options, folder),
                    wanted))
        severities = watch.severities
        failed = sum(bool(result.wrong) for result in results)
        skipped = sum(bool(result.skipped) for result in results)
        keep = bool(failed) or options.keep_logs
        print("\n" + table(results, severities))
        for name, reason in drill_scenes.WITHOUT.items():
            print(f"without a scene: {name}: {reason}")
        if keep:
            print(f"logs: {folder}")
        counts = f"{len(results) - failed - skipped} passed, {failed} failed"
        print(counts + (f", {skipped} skipped" if skipped else ""))
        return 1 if failed else 0
    finally:
        if not keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
