"""Runs the package's examples by the command that their docstring has."""

import ast
import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
import tempfile
from unittest import mock

import torch

from tests.python.job_case import PACKAGE, ROOT, WAIT
from tests.python.torch.torch_case import TorchCase

FOLDER = ROOT / "worker_client" / "python" / "examples"
sys.path.insert(0, str(FOLDER))

import toy  # pylint: disable=wrong-import-position

PROGRAMS = {"agg-launch": ["-m", "agg_server.launch"], "python3": [],
            "torchrun": ["-m", "torch.distributed.run"]}
_LINE = re.compile(r"rank (\d+): version (\S+), parameters (\w+)")


def adasum(rows):
    """Of two rows of one tensor, in double."""
    a, b = (row.double() for row in rows)
    dot, aa, bb = (a * b).sum(), (a * a).sum(), (b * b).sum()
    return ((1 - dot / (2 * aa)) * a + (1 - dot / (2 * bb)) * b).float()


def reference(rows_of, combine, make_optimizer, steps=20, after=None):
    """The example's parameters, computed in one process.

    rows_of(net): for each step a list of functions, one for each row, each of
    which leaves the row in net's gradients.
    """
    net = toy.model()
    optimizer = make_optimizer(net.parameters())
    for row_functions in rows_of(net):
        rows = []
        for make_row in row_functions:
            net.zero_grad()
            make_row()
            rows.append([p.grad.clone() for p in net.parameters()])
        for k, p in enumerate(net.parameters()):
            p.grad = combine([row[k] for row in rows])
        if after:
            after(net)
        optimizer.step()
        steps -= 1
    assert steps == 0, steps
    return dict(net.named_parameters())


def backward(net, *batches):
    """The mean gradient of batches of one size, as a row."""
    def make_row():
        for x, y in batches:
            (toy.loss_fn(net(x), y) / len(batches)).backward()
    return make_row


def two_ranks(net):
    """One batch of each of two ranks in each of twenty steps."""
    for pair in zip(toy.batches(0, 20), toy.batches(1, 20)):
        yield [backward(net, batch) for batch in pair]


class ExampleCase(TorchCase):

    def command(self, name):
        """The words of the docstring's command."""
        doc = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text()))
        found = re.search(r"^ *((agg-launch|python3|torchrun) .*)$", doc, re.M)
        self.assertTrue(found, f"{name}.py does not say how to run it")
        words = found.group(1).split()
        self.assertEqual(words[-1], f"{name}.py")
        return words

    def run_example(self, name, *flags):
        """(what it printed, {rank: version}, {rank: parameters})"""
        program, *words = self.command(name)
        with tempfile.TemporaryDirectory() as folder:
            result = subprocess.run(
                [sys.executable, "-B", *PROGRAMS[program], *words,
                 "--save", folder, *flags], capture_output=True, text=True,
                timeout=8 * WAIT, check=False, cwd=FOLDER,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(PACKAGE)})
            self.assertEqual(result.returncode, 0, result.stderr)
            saved = {int(path[len("rank"):-len(".pt")]):
                     torch.load(os.path.join(folder, path))
                     for path in os.listdir(folder) if path.endswith(".pt")}
        told = _LINE.findall(result.stdout)
        number = int(words[1]) if len(words) > 1 else 2
        self.assertEqual(sorted(int(rank) for rank, _, _ in told),
                         list(range(number)), result.stdout)
        self.assertEqual(len({sha for _, _, sha in told}), 1, result.stdout)
        return (result.stdout, {int(rank): v for rank, v, _ in told}, saved)

    def assert_close(self, found, expected):
        """Twenty steps of a few roundings each, of values of about 1."""
        for a, b in zip(found.values(), expected.values(), strict=True):
            torch.testing.assert_close(a, b.detach(), rtol=1e-4, atol=1e-5)

    def check_help(self, names):
        for name in names:
            text = io.StringIO()
            with contextlib.redirect_stdout(text), \
                    mock.patch.object(sys, "argv", [f"{name}.py", "--help"]), \
                    self.assertRaises(SystemExit) as ended:
                runpy.run_path(str(FOLDER / f"{name}.py"),
                               run_name="__main__")
            self.assertEqual(ended.exception.code, 0)
            self.assertIn(" ".join(self.command(name)), text.getvalue())
            self.assertIn("--steps", text.getvalue())
