"""deploy/docs/cookbook.md: each recipe's files and commands, as they stand."""

import collections
import contextlib
import csv
import importlib.util
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from tests.python.job_case import PACKAGE, ROOT, WAIT, JobCase, agg

_PAGE = ROOT / "deploy/docs/cookbook.md"
_TOOLS = pathlib.Path(os.environ.get("AGG_BIN", "bazel-bin")).absolute() / \
    "server" / "tools"
_FILE = re.compile(r"`([\w.]+)`:\n\n```\w*\n(.*?)```", re.S)
_COMMANDS = re.compile(r"```sh\n(.*?)```", re.S)

# In the place of wandb, which needs an account: what was logged.
_WANDB = '''
import json
run = None
class Run:
    def log(self, values):
        with open("wandb.jsonl", "a", encoding="utf-8") as file:
            print(json.dumps(values), file=file)
def init(**settings):
    global run
    assert settings["mode"] == "offline", settings
    run = Run()
'''

# files: text by name; commands: each block of the shell.
Recipe = collections.namedtuple("Recipe", "files commands")


def recipes():
    """{title: Recipe} of the page."""
    found = {}
    for section in re.split(r"^## ", _PAGE.read_text(), flags=re.M)[1:]:
        title, _, text = section.partition("\n")
        found[title] = Recipe(dict(_FILE.findall(text)),
                              _COMMANDS.findall(text))
    return found


def free_port():
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        return port.getsockname()[1]


class CookbookTest(JobCase):

    def setUp(self):
        self.folder = self.temporary_folder()
        programs = self.temporary_folder()
        python = f"exec {sys.executable} -B"
        for name, run in (
                ("agg-launch", f"{python} -m agg_server.launch"),
                ("python3", python),
                ("agg_server", f"exec {os.environ['AGG_SERVER']}"),
                ("agg_combine", f"exec {_TOOLS}/agg_combine")):
            (programs / name).write_text(f'#!/bin/sh\n{run} "$@"\n')
            (programs / name).chmod(0o755)
        self.environment = {
            **os.environ, "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1"}

    def lay_out(self, title, **replaced):
        """Writes the recipe's files; its blocks of commands. replaced: words
        of the page (with "_" for "-" and ".") that differ here."""
        recipe = recipes()[title]

        def here(text):
            for old, new in replaced.items():
                text = text.replace(old, new)
            return text

        for name, text in recipe.files.items():
            (self.folder / name).write_text(here(text))
        return [here(block) for block in recipe.commands]

    def start(self, commands):
        """A shell in the folder, which ends with the test, and so do those that
        it has started, and what they write."""
        # A file: a server in the background would keep a pipe open.
        output = tempfile.TemporaryFile("w+", encoding="utf-8")
        self.addCleanup(output.close)
        process = subprocess.Popen(
            ["bash", "-euc", commands], stdout=output, stderr=output,
            stdin=subprocess.DEVNULL, cwd=self.folder, env=self.environment,
            start_new_session=True)

        def end():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

        self.addCleanup(end)
        return process, output

    def wait(self, process, output):
        """What was printed once the shell has ended; fails if it has failed."""
        code = process.wait(4 * WAIT)
        output.seek(0)
        said = output.read()
        self.assertEqual(code, 0, said)
        return said

    def cook(self, title):
        """What the commands print."""
        block, = self.lay_out(title)
        return self.wait(*self.start(block))

    def test_every_recipe_has_a_test(self):
        self.assertEqual(len(recipes()), sum(
            name.startswith("test_recipe_") for name in dir(self)))
        # The list on top names each of them.
        listed = re.findall(r"^- \[(.*)\]\(#", _PAGE.read_text(), re.M)
        self.assertEqual(listed, list(recipes()))

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"),
                         "matplotlib is not installed")
    def test_recipe_orthogonality(self):
        said = self.cook("Plot the orthogonality of each layer")
        lines = re.findall(r"([\w.]+): ([\d.]+) in the first 20 rounds, "
                           r"([\d.]+) in the last 20", said)
        self.assertEqual([line[0] for line in lines],
                         ["0.weight", "0.bias", "2.weight", "2.bias"], said)
        for _, *values in lines:
            for value in values:
                self.assertTrue(0 < float(value) <= 1, said)
        picture = (self.folder / "orthogonality.png").read_bytes()
        self.assertTrue(picture.startswith(b"\x89PNG"))

    def test_recipe_advice(self):
        said = self.cook("Ask which rule and how many workers")
        self.assertRegex(said, r"workers: 4 workers make a round worth [\d.]+")
        self.assertEqual(re.findall(
            r"^(\w+): (?:first|better|equal|worse|undecided)$", said, re.M),
                         ["mean", "adasum", "unit_mean"], said)

    def test_recipe_listeners(self):
        (self.folder / "wandb.py").write_text(_WANDB)
        self.cook("Log to Weights & Biases, or anywhere")
        with open(self.folder / "rounds.csv", encoding="utf-8") as file:
            rows = [[float(value) for value in row] for row in csv.reader(file)]
        self.assertEqual([row[0] for row in rows], list(range(1, 21)))
        self.assertLess(rows[-1][1], rows[0][1])
        for row in rows:
            self.assertTrue(0 <= row[2] <= 1 <= row[3] <= 2, row)
        logged = [json.loads(line) for line in
                  (self.folder / "wandb.jsonl").read_text().splitlines()]
        self.assertEqual([entry["agg/loss"] for entry in logged],
                         [row[1] for row in rows])

    def test_recipe_going_on(self):
        said = self.cook("Stop, and go on later")
        begins = sorted(re.findall(r"rank (\d) begins at version (\d+)", said))
        self.assertEqual(begins, [("0", "0"), ("0", "100"), ("1", "0"),
                                  ("1", "100")])
        losses = dict(re.findall(r"version (\d+): loss ([\d.]+)", said))
        self.assertEqual(list(losses), ["100", "300"])
        self.assertLess(float(losses["300"]), float(losses["100"]))
        # The page says what reads them.
        newest = max((self.folder / "checkpoints" / "more").iterdir(),
                     key=lambda path: int(path.name.rpartition("-")[2]))
        self.assertEqual(sorted(agg.read_checkpoint(newest)),
                         ["bias", "weight"])

    def test_recipe_evaluation(self):
        said = self.cook("Evaluate while the job trains")
        errors = re.findall(r"version (\d+): test error ([\d.]+)", said)
        self.assertEqual(len(errors), 4, said)
        for at, (version, _) in zip((50, 100, 150, 200), errors):
            self.assertGreaterEqual(int(version), at)
        self.assertLess(float(errors[-1][1]), 0.01)

    def test_recipe_rule_of_ones_own(self):
        said = self.cook("Try a rule of your own on saved gradients")
        lines = re.findall(r"step0(\d)0: length ([\d.]+), Adasum's ([\d.]+), "
                           r"cosine ([\d.]+), orthogonality ([\d.]+)", said)
        self.assertEqual([line[0] for line in lines], list("0123"), said)
        for _, mine, theirs, cosine, orthogonality in lines:
            # A mean of four that are no longer than they were is the shorter.
            self.assertLess(float(mine), float(theirs))
            self.assertTrue(0 < float(cosine) <= 1)
            self.assertTrue(0.25 <= float(orthogonality) <= 1)

    def test_recipe_live_rule(self):
        block, = self.lay_out("Let a rule of your own decide a live job",
                              **{"50051": str(free_port())})
        said = self.wait(*self.start(block))
        ends = re.findall(r"rule (\w+), loss ([\d.]+), '(.*)'", said)
        # No round was combined by the fallback.
        self.assertEqual([(rule, message) for rule, _, message in ends],
                         [("external", "")] * 4, said)

    def test_recipe_machines(self):
        ports = {"50051": str(free_port()), "50052": str(free_port())}
        blocks = self.lay_out("Train on several machines", **ports, **{
            "host-a": "127.0.0.1", "host-b": "127.0.0.1",
            "0.0.0.0": "127.0.0.1"})
        shells = [self.start(block) for block in blocks]
        said = "".join(self.wait(*shell) for shell in shells)
        self.assertEqual(sorted(re.findall(r"rank (\d) of 4: [\d.]+", said)),
                         list("0123"), said)

    def test_recipe_two_models(self):
        said = self.cook("Two models that learn from each other")
        means = re.findall(r"rank (\d): fakes have the mean (-?[\d.]+)", said)
        self.assertEqual(sorted(rank for rank, _ in means), ["0", "1"], said)
        for _, mean in means:
            self.assertGreater(float(mean), 1.0)  # it begins near 0; real: 3


if __name__ == "__main__":
    unittest.main()
