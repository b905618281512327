"""The front page's and the package's documents: their programs, commands and
snippets run."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import torch
import torch.distributed as dist

from tests.python.job_case import PACKAGE, ROOT, WAIT, JobCase, agg

_FOLDER = ROOT / "worker_client" / "python"
_README = _FOLDER / "README.md"
_FRONT = ROOT / "README.md"
# Documents, and how many snippets of Python each has.
DOCUMENTS = {_FRONT: 1, _README: 5,
             ROOT / "worker_client/python/TRAPS.md": 5,
             ROOT / "worker_client/python/MIGRATION.md": 3}


# What a reader's script has around the page's diff.
_OWN = """
import os
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
import agg_server as agg
torch.manual_seed(0)
x = torch.randn(256, 4)
dataset = TensorDataset(x, x.sum(1, keepdim=True))
loss_fn = torch.nn.functional.mse_loss
def Net():
    return torch.nn.Linear(4, 1)
"""


def blocks(path, language):
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.S)


def launches(path):
    """The page's blocks that are a command of agg-launch."""
    return [text for text in blocks(path, "sh")
            if text.startswith("agg-launch")]


def said_of(path, command):
    """What the page says that a command prints: the block behind it."""
    return re.search(re.escape(f"```sh\n{command}```") + r"\n\n```\n(.*?)```",
                     path.read_text(), re.S).group(1)


# A network of the test's own: the page's port is free there, and nobody else
# reaches what listens on it.
_UNSHARE = ["unshare", "--net"] + (
    [] if os.geteuid() == 0 else ["--user", "--map-root-user"])


def why_no_network():
    for program in ("unshare", "ip"):
        if shutil.which(program) is None:
            return f"needs the program {program}"
    made = subprocess.run([*_UNSHARE, "ip", "link", "set", "lo", "up"],
                          capture_output=True, text=True, check=False)
    return made.stderr if made.returncode else None


NO_NETWORK = why_no_network()


def optimizer_of(block):
    """The job that a snippet is for."""
    if 'mode="combine"' in block:
        return {"optimizer": "none"}
    if "LocalSteps" in block:
        return {"optimizer": "add"}
    groups = re.findall(r'"(\w+)": \[n for', block)
    return {"lr": 0.01, "config": {
        "groups": [{"name": group, "weight_decay": 0.0}
                   for group in groups]}}


class ReadmeTest(JobCase):

    def names(self):
        """What snippets use without having made it."""
        torch.manual_seed(0)
        return {"agg": agg, "os": os, "torch": torch, "node": 0, "local_rank": 0,
                "model": torch.nn.Linear(10, 1),
                "loss_fn": torch.nn.functional.mse_loss,
                "loader": [(torch.randn(4, 10), torch.randn(4, 1))
                           for _ in range(4)]}

    def run_block(self, block, names):
        """A worker alone in its job runs it; rounds were made."""
        server = self.serve(**optimizer_of(block))
        # Of four batches.
        block = block.replace("every=100", "every=2").replace("% 100", "% 2")
        environment = {"AGG_COORDINATOR": server.address, "RANK": "0"}
        with mock.patch.dict(os.environ, environment):
            exec(compile(block, "a snippet", "exec"), names)
        worker = names["worker"]
        self.addCleanup(worker.close)
        if "for " in block and "loader" in block:
            self.assertIn(worker.last.version, (2, 4), block)
            self.assertTrue(worker.last.applied)
        elif "allreduce" in block:
            self.assertEqual(names["total"].tolist(), [1, 1, 1])
        else:
            self.assertEqual(worker.rank, 0)
            self.assertTrue(worker.job.optimizer)

    def test_the_front_page_prints_what_it_says(self):
        (program,) = blocks(_FRONT, "python")
        (command,) = launches(_FRONT)
        result = self.launch(command, program)
        self.assertEqual(result.stdout, said_of(_FRONT, command))

    @unittest.skipIf(NO_NETWORK, NO_NETWORK)
    def test_the_front_pages_job_on_several_machines(self):
        """Its commands in one network, with an address for each machine."""
        (program,) = blocks(_FRONT, "python")
        (block,) = [text for text in blocks(_FRONT, "sh") if "host-a" in text]
        for host, address in (("host-a", "127.0.0.1"), ("host-b", "127.0.0.2")):
            block = re.sub(rf"--bind=0.0.0.0(?=.*# on {host}\n)",
                           f"--bind={address}", block).replace(host, address)
        folder = self.temporary_folder()
        (folder / "train.py").write_text(program)
        for name, command in (
                ("agg_server", os.environ["AGG_SERVER"]),
                ("agg-launch", f"{sys.executable} -B -m agg_server.launch")):
            (folder / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (folder / name).chmod(0o755)
        block = re.sub("(?m)(^agg-launch .*&)", r"\1 workers=$!", block)
        # By process, since bash forgets a job that ends while another is waited
        # for. The servers have the pipes, too, and so end with the shell.
        block = re.sub("(?m)(^agg_server .*&)", r"\1 servers+=($!)", block)
        script = "\n".join([
            "set -e", "trap 'kill $(jobs -p)' EXIT", "ip link set lo up", block,
            "wait $workers", "kill ${servers[@]}", "wait ${servers[0]}",
            "wait ${servers[1]}", "trap - EXIT"])
        process = subprocess.Popen(
            [*_UNSHARE, "bash", "-c", script], cwd=folder, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(PACKAGE),
                 "PATH": f"{folder}:{os.environ['PATH']}"})
        try:
            output, errors = process.communicate(timeout=8 * WAIT)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        self.assertEqual(process.returncode, 0, errors)
        # "The same lines": those of the program on one machine.
        self.assertEqual(output, said_of(_FRONT, launches(_FRONT)[0]))

    def test_the_first_program_learns(self):
        result = self.launch(launches(_README)[0], blocks(_README, "python")[0])
        lines = sorted(result.stdout.splitlines())
        self.assertEqual([line.split(":")[0] for line in lines],
                         [f"rank {rank}" for rank in range(4)])
        losses = re.findall(r"'loss': ([\d.]+)", result.stdout)
        self.assertEqual(len(losses), 4)
        self.assertLess(float(losses[0]), 5.0)  # it begins near 13

    def test_a_script_for_one_process_becomes_a_worker(self):
        """Both sides of the page's diff, with a model and data."""
        diff = blocks(_README, "diff")[0].splitlines()
        before, after = ("\n".join(line[1:] for line in diff
                                   if line[0] != other) for other in "+-")
        exec(compile(_OWN + before.replace("range(5)", "range(1)").replace(
            '"model.pt"', "os.devnull"), "before", "exec"), {})
        folder = self.temporary_folder()
        self.launch(launches(_README)[1], _OWN + after, folder)
        saved = torch.load(folder / "model.pt")
        # One epoch of four workers is 2 steps; y is the sum of x.
        self.assertEqual(list(saved), ["weight", "bias"])
        self.assertGreater(float(saved["weight"].min()), 0.3)

    def launch(self, command, script, folder=None):
        """Runs a page's command in a folder in which the script is train.py."""
        folder = folder or self.temporary_folder()
        (folder / "train.py").write_text(script)
        result = subprocess.run(
            [sys.executable, "-B", "-m", "agg_server.launch",
             *command.split()[1:]],
            capture_output=True, text=True, check=False, timeout=8 * WAIT,
            cwd=folder, stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(PACKAGE)})
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def test_the_configurations_are_of_jobs(self):
        files = re.findall(r"cat >job.textproto <<'END'\n(.*?)\nEND\n",
                           _README.read_text(), re.S)
        self.assertEqual(len(files), 2)
        for text in files:
            # The server has ports of its own.
            text = re.sub(r"^(shards|workers): .*\n", "", text, flags=re.M)
            with agg.LocalServer(2, 4, config=text) as server:
                self.assertTrue(server.address)

    def test_every_other_snippet_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            self.addCleanup(os.chdir, os.getcwd())
            os.chdir(folder)  # where a snippet writes
            dist.init_process_group("gloo", rank=0, world_size=1,
                                    init_method=f"file://{folder}/store")
            self.addCleanup(dist.destroy_process_group)
            groups = {name: dist.new_group([0])
                      for name in ("node_group", "side_group")}
            for path, count in DOCUMENTS.items():
                found = blocks(path, "python")
                self.assertEqual(len(found), count, path)
                for block in found[path in (_FRONT, _README):]:
                    with self.subTest(block=block):
                        self.run_block(block, {**self.names(), **groups})

    def test_names_are_those_that_there_are(self):
        for path in DOCUMENTS:
            for name in set(re.findall(r"\bagg\.([A-Za-z_]+)",
                                       path.read_text())) - {"errors"}:
                # Headers of C and C++, and files, are written so, too.
                self.assertTrue(hasattr(agg, name) or name in ("h", "proto"),
                                f"{path}: {name}")

    def test_the_table_of_examples_is_the_folder(self):
        text = _README.read_text()
        named = set(re.findall(r"`(\w+)\.py`|examples/(\w+)\.py", text))
        # train.py is what the reader writes with this page.
        self.assertEqual({a or b for a, b in named} - {"train"},
                         {path.stem for path in
                          (_FOLDER / "examples").glob("*.py")})


if __name__ == "__main__":
    unittest.main()
