"""Ctrl-C, exits, forks and lost processes; each in a process of its own."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
import unittest

import numpy as np

from tests.python.job_case import ROOT, WAIT, JobCase, agg

_HEAD = """
import os, signal, sys, threading, time
import numpy as np
from tests.python.job_case import agg
# Who runs the tests in the background may have it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
address = sys.argv[1]
def arrays():
    return {"w": np.zeros(3, np.float32)}
def say(text):
    os.write(1, f"{text}\\n".encode())  # as a signal's handler may
def tell_waits():
    # Says "waits" when a call looks up from its wait for the first time, and
    # sets the event that it returns; again after the event was cleared. An
    # interrupt comes after the call then, as does the next one.
    from agg_server._session import Session
    drain, waits = Session._drain_events, threading.Event()
    def drain_and_say(self):
        if not waits.is_set():
            waits.set()
            say("waits")
        drain(self)
    Session._drain_events = drain_and_say
    return waits
"""


def arrays():
    return {"w": np.zeros(3, np.float32)}


class ProcessTest(JobCase):

    def start(self, script, *arguments):
        process = subprocess.Popen(
            [sys.executable, "-B", "-c", _HEAD + textwrap.dedent(script),
             *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, cwd=os.getcwd(),
            env={**os.environ, "PYTHONPATH": str(ROOT)})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def read(self, process, line):
        found = process.stdout.readline().strip()
        self.assertEqual(found, line, found or process.stderr.read())

    def finish(self, process):
        """What it wrote until its end."""
        out, err = process.communicate(timeout=WAIT)
        self.assertEqual(process.returncode, 0, err)
        return out

    def await_ends(self, pids):
        deadline = time.monotonic() + WAIT
        while any(_runs(pid) for pid in pids):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def interrupt(self, process):
        """One Ctrl-C, once the call waits (tell_waits())."""
        self.read(process, "waits")
        process.send_signal(signal.SIGINT)
        self.read(process, "interrupted")

    def job_of_three(self):
        """With a client of rank 1: else the job would end with the process."""
        server = self.serve(workers=3, lr=1.0)
        self.addCleanup(agg.Client(arrays(), server.address, 1).close)
        return server

    def test_ctrl_c_ends_a_call(self):
        """The process goes on, and ends, although the call still waits."""
        for call in ("client.step({'w': np.ones(3)})", "client.wait(1)",
                     "client.pull(1)", "agg.Client(arrays(), '127.0.0.1:1', 5, "
                     "connect_timeout=600)"):
            with self.subTest(call):
                process = self.start(f"""
                    client = agg.Client(arrays(), address, 0)
                    tell_waits()
                    try:
                        {call}
                    except KeyboardInterrupt:
                        say("interrupted")
                    """, self.job_of_three().address)
                self.interrupt(process)
                self.finish(process)

    def test_the_call_after_ctrl_c_comes_after_the_first_one(self):
        server = self.serve(workers=2, lr=1.0)
        process = self.start("""
            client = agg.Client(arrays(), address, 0)
            waits = tell_waits()
            try:
                client.step({"w": np.full(3, 2.0)})
            except KeyboardInterrupt:
                waits.clear()
                say("interrupted")
            say(client.step({"w": np.full(3, 8.0)}).version)
            """, server.address)
        self.interrupt(process)
        self.read(process, "waits")  # the second one
        w = np.zeros(3, np.float32)
        with agg.Client({"w": w}, server.address, 1) as client:
            for version, expected in ((1, -1), (2, -5)):  # minus the mean
                outcome = client.step({"w": np.zeros(3)})
                self.assertEqual((outcome.version, outcome.ranks),
                                 (version, (0, 1)))
                np.testing.assert_array_equal(w, np.full(3, expected))
            self.read(process, "2")
        self.finish(process)

    def test_a_handler_runs_while_a_round_waits(self):
        """The round is the same after it: its row is pushed once."""
        server = self.serve(workers=2, lr=1.0)
        log = str(self.temporary_folder() / "audit.log")
        process = self.start("""
            client = agg.Client(arrays(), address, 0, audit_log=sys.argv[2])
            # Not print(): the next signal may come before it returns.
            signal.signal(signal.SIGUSR1,
                          lambda *_: os.write(1, b"handled\\n"))
            tell_waits()
            say(client.step({"w": np.full(3, 2.0)}).ranks)
            """, server.address, log)
        self.read(process, "waits")
        for _ in range(3):
            process.send_signal(signal.SIGUSR1)
            self.read(process, "handled")
        w = np.zeros(3, np.float32)
        with agg.Client({"w": w}, server.address, 1) as client:
            outcome = client.step({"w": np.zeros(3)})
            self.assertEqual((outcome.version, outcome.ranks), (1, (0, 1)))
            np.testing.assert_array_equal(w, np.full(3, -1))
            self.read(process, "(0, 1)")
        self.finish(process)
        with open(log, encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        self.assertEqual([(row["attempt"], row["included"]) for row in rows],
                         [(0, True)])

    def test_a_handler_may_close_the_client_whose_round_waits(self):
        server = self.job_of_three()
        process = self.start("""
            client = agg.Client(arrays(), address, 0)
            signal.signal(signal.SIGTERM, lambda *_: client.close())
            tell_waits()
            try:
                client.step({"w": np.ones(3)})
            except agg.Cancelled:
                say("cancelled")
            """, server.address)
        self.read(process, "waits")
        process.terminate()
        self.read(process, "cancelled")
        self.finish(process)

    def test_an_event_loop_keeps_its_signals(self):
        server = self.job_of_three()
        process = self.start("""
            client = agg.Client(arrays(), address, 0)
            read, write = os.pipe()
            os.set_blocking(write, False)
            signal.set_wakeup_fd(write)
            tell_waits()
            try:
                client.step({"w": np.ones(3)})
            except KeyboardInterrupt:
                say("interrupted")
            assert os.read(read, 9) == bytes([signal.SIGINT])
            assert signal.set_wakeup_fd(-1) == write
            """, server.address)
        self.interrupt(process)
        self.finish(process)

    def test_an_event_loop_that_is_known_is_left_alone(self):
        server = self.serve(workers=1, lr=1.0)
        process = self.start("""
            client = agg.Client(arrays(), address, 0)
            read, write = os.pipe()
            os.set_blocking(write, False)
            signal.set_wakeup_fd(write)
            client.step({"w": np.ones(3)})
            calls, set_fd = [], signal.set_wakeup_fd
            def counted(fd, **options):
                calls.append(fd)
                return set_fd(fd, **options)
            signal.set_wakeup_fd = counted
            client.step({"w": np.ones(3)})
            assert calls == [], calls
            # It ends.
            assert set_fd(-1) == write
            os.close(write)
            client.step({"w": np.ones(3)})
            assert calls[-1] == -1 and len(calls) == 2, calls
            assert set_fd(-1) == -1
            """, server.address)
        self.finish(process)

    def test_signals_are_nobodys_between_rounds(self):
        server = self.serve(workers=1, lr=1.0)
        process = self.start("""
            client = agg.Client(arrays(), address, 0)
            for _ in range(3):
                client.step({"w": np.ones(3)})
                assert signal.set_wakeup_fd(-1) == -1
            pid = os.fork()
            if pid == 0:
                from agg_server import _inside
                os._exit(0 if _inside._inside is None else 1)
            say(os.waitpid(pid, 0)[1])
            """, server.address)
        self.read(process, "0")
        self.finish(process)

    def test_a_process_ends_with_a_call_that_waits(self):
        server = self.serve(workers=2, lr=1.0)
        process = self.start("""
            client = agg.Client(arrays(), address, 0)
            waits = tell_waits()
            threading.Thread(target=lambda: client.step({"w": np.ones(3)}),
                             daemon=True).start()
            waits.wait()
            """, server.address)
        self.assertEqual(self.finish(process), "waits\n")

    def test_a_forked_child_cannot_hurt_its_parent(self):
        server = self.serve(workers=1, lr=1.0)
        process = self.start("""
            import gc
            client = agg.Client(arrays(), address, 0)
            client.step({"w": np.ones(3)})
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    client.step({"w": np.ones(3)})
                except agg.ForkedError:
                    client.close()
                    del client
                    gc.collect()
                    sys.exit(0)  # with atexit functions
                os._exit(1)
            say(os.waitpid(pid, 0)[1])
            say(client.step({"w": np.ones(3)}).version)
            client.close()
            """, server.address)
        self.assertEqual(self.finish(process).split(), ["0", "2"])

    def test_a_forked_child_cannot_make_a_client(self):
        """Not of a client that is there, nor of one that was: gRPC's threads
        are the parent's."""
        server = self.serve(workers=2, lr=1.0)
        for leaves in ("client.close()", ""):
            process = self.start(f"""
                client = agg.Client(arrays(), address, 0)
                {leaves}
                def refused(make):
                    try:
                        make()
                    except agg.ForkedError as error:
                        return "spawn" in str(error) and \
                            "forkserver" in str(error)
                    return False
                pid = os.fork()
                if pid == 0:
                    os._exit(0 if refused(
                        lambda: agg.Client(arrays(), address, 1)) and refused(
                        lambda: agg.Observer(address)) else 1)
                say(os.waitpid(pid, 0)[1])
                """, server.address)
            self.assertEqual(self.finish(process), "0\n")

    def test_every_call_of_a_forked_child_is_refused(self):
        server = self.serve(workers=1, lr=1.0)
        process = self.start("""
            client = agg.Client(arrays(), address, 0)
            observer = agg.Observer(address)
            row = {"w": np.ones(3)}
            calls = [lambda: client.step(row), lambda: client.all_reduce(row),
                     lambda: client.pull(), lambda: client.wait(1),
                     lambda: client.start(), lambda: client.version,
                     lambda: client.finished, lambda: client.job,
                     lambda: client.manifest, lambda: client.latest_version(),
                     lambda: observer.pull(), lambda: observer.wait(1),
                     lambda: observer.job]
            pid = os.fork()
            if pid == 0:
                for i, call in enumerate(calls):
                    try:
                        call()
                        say(f"call {i} went on")
                    except agg.ForkedError:
                        pass
                client.close()
                observer.close()
                sys.exit(0)  # with atexit functions
            say(os.waitpid(pid, 0)[1])
            say(client.step(row).version)
            """, server.address)
        self.assertEqual(self.finish(process).split(), ["0", "1"])

    def test_a_forked_child_makes_the_first_client(self):
        """The parent had loaded the library alone, and a server."""
        process = self.start("""
            from agg_server import _abi
            _abi.load()
            server = agg.LocalServer(workers=1, lr=1.0)
            pid = os.fork()
            if pid == 0:
                with agg.Client(arrays(), server.address, 0) as client:
                    client.step({"w": np.ones(3)})
                os._exit(0)
            say(os.waitpid(pid, 0)[1])
            server.close()
            """, "")
        self.assertEqual(self.finish(process), "0\n")

    def test_a_forked_child_leaves_its_parents_servers_alone(self):
        process = self.start("""
            import gc
            server = agg.LocalServer(workers=1, lr=1.0)
            for ends in ("server.close()", "del server; gc.collect()", ""):
                pid = os.fork()
                if pid == 0:
                    exec(ends)
                    sys.exit(0)  # with atexit functions and finalizers
                assert os.waitpid(pid, 0)[1] == 0
                assert server.folder.is_dir(), ends
                assert "serving" in server.log() or server.log(), ends
            with agg.Client(arrays(), server.address, 0) as client:
                say(client.step({"w": np.ones(3)}).version)
            server.close()
            assert not server.folder.exists()
            """, "")
        self.assertEqual(self.finish(process), "1\n")

    def test_servers_end_with_the_parent_of_a_forked_child(self):
        process = self.start("""
            server = agg.LocalServer(workers=1, lr=1.0)
            child = os.fork()
            if child == 0:
                signal.pause()
            say(f"{server.pids[0]} {child}")
            os.kill(os.getpid(), signal.SIGKILL)
            """, "")
        pid, child = map(int, process.stdout.readline().split())
        self.addCleanup(os.kill, child, signal.SIGKILL)
        process.wait(WAIT)
        self.await_ends([pid])

    def test_fork_while_a_round_waits(self):
        server = self.serve(workers=2, lr=1.0)
        process = self.start("""
            client = agg.Client(arrays(), address, 0)
            waits = tell_waits()
            thread = threading.Thread(
                target=lambda: say(client.step({"w": np.ones(3)}).version))
            thread.start()
            waits.wait()
            for _ in range(20):
                pid = os.fork()
                if pid == 0:
                    os._exit(0)
                os.waitpid(pid, 0)
            say("forked")
            thread.join()
            """, server.address)
        self.read(process, "waits")
        self.read(process, "forked")
        with agg.Client(arrays(), server.address, 1) as client:
            client.step({"w": np.ones(3)})
            self.read(process, "1")
        self.finish(process)

    def test_a_killed_shard_is_an_error_that_names_it(self):
        server = self.serve(workers=1, shards=2, lr=1.0)
        with agg.Client(arrays(), server.address, 0,
                        recovery_window=0.0, reconnect_window=0.5) as client:
            os.kill(server.pids[1], signal.SIGKILL)
            with self.assertRaises(agg.ShardLost) as caught:
                while True:
                    client.step({"w": np.ones(3)})
            self.assertTrue(caught.exception.retryable)
            self.assertEqual(caught.exception.shard, 1, caught.exception)

    def test_who_was_lost_is_said_to_the_others(self):
        server = self.serve(workers=2, lr=1.0)
        process = self.start("""
            client = agg.Client(arrays(), address, 1)
            client.step({"w": np.ones(3, np.float32)})
            say("in")
            signal.pause()
            """, server.address)
        with self.assertLogs("agg_server", "WARNING") as logs, agg.Client(
                arrays(), server.address, 0) as client:
            client.step({"w": np.ones(3, np.float32)})
            self.read(process, "in")
            process.kill()
            outcome = client.step({"w": np.ones(3, np.float32)})
            self.assertEqual(outcome.ranks, (0,))
            deadline = time.monotonic() + WAIT
            while not any("rank 1" in line for line in logs.output):
                self.assertLess(time.monotonic(), deadline, logs.output)
                client.step({"w": np.ones(3, np.float32)})
        self.assertEqual(len([line for line in logs.output
                              if "rank 1" in line and "lost" in line]), 1,
                         logs.output)

    def test_servers_end_with_the_process_that_started_them(self):
        process = self.start("""
            server = agg.LocalServer(shards=2, workers=1, lr=1.0)
            say(" ".join(map(str, server.pids)))
            os.kill(os.getpid(), signal.SIGKILL)
            """, "")
        pids = [int(pid) for pid in process.stdout.readline().split()]
        self.assertEqual(len(pids), 2, process.stderr.read())
        process.wait(WAIT)
        self.await_ends(pids)


def _runs(pid):
    """Not gone, and no zombie that nobody waits for."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


if __name__ == "__main__":
    unittest.main()
