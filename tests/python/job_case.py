"""Jobs on this machine and workers in threads, for the tests of the package.

AGG_SERVER and AGG_LIBRARY name the binaries; under Bazel they are found.
AGG_PACKAGE: the folder of an installed package (site-packages), to test that
one, with its binaries, instead of the tree's.
"""

import inspect
import multiprocessing
import os
import pathlib
import sys
import tempfile
import threading
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGE = pathlib.Path(os.environ.get("AGG_PACKAGE") or
                       ROOT / "worker_client" / "python")
sys.path.insert(0, str(PACKAGE))
for name, path in (("AGG_SERVER", "server/agg_server"),
                   ("AGG_LIBRARY", "worker_client/c/libagg.so")):
    if name not in os.environ and pathlib.Path(path).is_file():
        os.environ[name] = str(pathlib.Path(path).resolve())

# With it, a print of two words is more than one write, and the lines of workers
# that share an output mix.
os.environ.pop("PYTHONUNBUFFERED", None)
# Of the person's own job.
for name in ("AGG_COORDINATOR", "AGG_TLS_CA", "AGG_TLS_CERTIFICATE",
             "AGG_TLS_KEY", "AGG_TLS_SERVER_NAME", "AGG_TOKEN_FILE"):
    os.environ.pop(name, None)

import agg_server as agg  # pylint: disable=wrong-import-position

# What takes as long has failed. No test passes by waiting for this long.
WAIT = 60


_JOB = set(inspect.signature(agg.LocalServer).parameters)


def split_fields(fields):
    """(those of a LocalServer, others: a client's options)"""
    return ({name: value for name, value in fields.items() if name in _JOB},
            {name: value for name, value in fields.items() if name not in _JOB})


class JobCase(unittest.TestCase):
    """Starts servers, and ends them with the test."""

    def serve(self, **options):
        """A LocalServer; see there."""
        server = agg.LocalServer(**options)
        self.addCleanup(server.close)
        return server

    def lone_client(self, parameters, **fields):
        """A client alone in its job, until the test ends; `fields` are the
        job's (see LocalServer) and the client's options."""
        job, options = split_fields(fields)
        client = agg.Client(parameters, self.serve(**job).address, 0,
                            **options)
        self.addCleanup(client.close)
        return client

    def train_once(self, server, **options):
        """A round of a client alone, at rate 0.5."""
        x = {"w": np.zeros(3, np.float32)}
        with agg.Client(x, server.address, 0, **options) as client:
            client.step({"w": np.ones(3, np.float32)})
        np.testing.assert_array_equal(x["w"], np.full(3, -0.5, np.float32))

    def temporary_folder(self):
        """Gone when the test ends."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return pathlib.Path(folder.name)

    def run_processes(self, target, arguments, seconds=2 * WAIT):
        """target(*each) for each of the arguments in a process of its own, a
        fork of one that has imported the target's module: all end well."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([target.__module__])
        processes = [context.Process(target=target, args=each)
                     for each in arguments]
        for process in processes:
            process.start()
            self.addCleanup(process.kill)
        for process in processes:
            process.join(seconds)
        self.assertEqual([p.exitcode for p in processes],
                         [0] * len(processes))

    def team(self, number, run):
        """run(rank) in a thread for each rank; their results, by rank."""
        results, errors = [None] * number, []

        def work(rank):
            try:
                results[rank] = run(rank)
            except BaseException as error:  # pylint: disable=broad-except
                errors.append(error)

        threads = [threading.Thread(target=work, args=(rank,), daemon=True)
                   for rank in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        if errors:
            raise errors[0]
        self.assertFalse(any(t.is_alive() for t in threads), "a worker hangs")
        return results
