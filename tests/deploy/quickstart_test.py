"""The quickstart's pure parts: options, configuration, summaries, tables."""

import contextlib
import hashlib
import http.server
import io
import json
import os
import pathlib
import socket
import struct
import sys
import tempfile
import threading
import unittest
import zipfile
from unittest import mock

from deploy import quickstart
from deploy import quickstart_chaos as chaos
from deploy import quickstart_job as job
from deploy import quickstart_monitoring as monitoring
from deploy import quickstart_options
from deploy import quickstart_view as view


def parse(text):
    return quickstart_options.parse(text.split())


class OptionsTest(unittest.TestCase):

    def test_defaults_are_the_experiment(self):
        options = parse("")
        self.assertEqual(
            (options.shards, options.workers, options.batch, options.epochs,
             options.learning_rate, options.optimizer, options.wire_dtype,
             options.backend, options.step_scale),
            (2, 32, 2, 2, 0.05, "sgd", "f32", "cpu", "none"))

    def test_all_options_of_a_run(self):
        options = parse("--shards 3 --workers 8 --rule adasum --scope global "
                        "--step_scale adascale --optimizer adam "
                        "--learning_rate 1e-3 --batch 4 --epochs 1 --seed 7 "
                        "--wire_dtype bf16 --backend cpu --json out.json")
        run = quickstart.run_of(options)
        self.assertEqual(run, job.Run(
            rule="adasum", scope="global", step_scale="adascale",
            optimizer="adam", shards=3, workers=8, batch=4,
            learning_rate=1e-3, epochs=1, seed=7, wire_dtype="bf16",
            backend="cpu"))

    def test_chaos_has_defaults_of_its_own(self):
        options = parse("--chaos")
        self.assertEqual(
            (options.shards, options.workers, options.batch, options.optimizer,
             options.kills), (4, 3, 8, "adam", 12))
        self.assertEqual(parse("--chaos --shards 3").shards, 3)

    def test_errors_name_flag_value_and_what_is_allowed(self):
        cases = {
            "--scope x --rule sum": ("--scope", "'x'", "per_tensor, global"),
            "--step_scale x": ("--step_scale", "'x'", "adascale"),
            "--wire_dtype f64": ("--wire_dtype", "'f64'",
                                 "f32, bf16, f16, int8"),
            "--backend x": ("--backend", "'x'", "cpu"),
            "--workers 0": ("--workers", "'0'", "1..512"),
            "--shards 2.5": ("--shards", "'2.5'", "1..64"),
            "--learning_rate inf": ("--learning_rate", "'inf'", "over 0"),
            "--learning_rate 0": ("--learning_rate", "'0'", "over 0"),
            "--workers 32 --batch 46": ("--batch", "1472", "1440"),
            "--scope global": ("--scope", "global", "--rule"),
            "--tune --rule sum": ("--tune", "allowed", "--rule"),
            "--shard 3": ("unrecognized", "--shard", "3"),
            "--keep": ("--keep", "needs", "--monitoring"),
            "--monitoring --tune": ("--monitoring", "allowed", "--tune"),
            "--chaos --tune": ("--chaos", "allowed", "--tune"),
            "--chaos --monitoring": ("--chaos", "allowed", "--monitoring"),
            "--chaos --shards 1": ("--shards", "1", "allowed", "2"),
            "--chaos --kills 0": ("--kills", "'0'", "1..1000"),
        }
        for text, parts in cases.items():
            stderr = io.StringIO()
            with self.subTest(text), contextlib.redirect_stderr(stderr):
                with self.assertRaises(SystemExit) as exit_:
                    parse(text)
                self.assertEqual(exit_.exception.code, 2)
                for part in parts:
                    self.assertIn(part, stderr.getvalue())
                self.assertEqual(stderr.getvalue().count("\n"), 1)


class ConfigTest(unittest.TestCase):

    def test_shards_differ_only_in_addresses(self):
        run = job.Run(rule="adacons")
        one = job.config_text(run, ["127.0.0.1:1", "127.0.0.1:2"])
        two = job.config_text(run, ["127.0.0.1:3", "127.0.0.1:4"])
        self.assertEqual(one.replace(":1\"", ":3\"").replace(":2\"", ":4\""),
                         two)

    def test_names_what_was_asked_for(self):
        text = job.config_text(
            job.Run(rule="adacons", scope="per_tensor", step_scale="none",
                    optimizer="lamb", learning_rate=0.1, workers=5,
                    wire_dtype="bf16"), ["a:1"])
        for part in ('rule: "adacons"', 'scope: "per_tensor"',
                     'rescale: "mean_norm"', 'kind: "lamb"', "workers: 5",
                     "rate: 0.1", 'push_dtype: "bf16"',
                     'pull_dtype: "bf16"'):
            self.assertIn(part, text)
        self.assertNotIn("adacons {", job.config_text(job.Run(), ["a:1"]))

    def test_rows_alone_are_int8(self):
        text = job.config_text(job.Run(wire_dtype="int8"), ["a:1"])
        self.assertIn('push_dtype: "int8"\npull_dtype: "bf16"\n', text)

    def test_rules_and_optimizers_are_the_servers_to_judge(self):
        run = quickstart.run_of(parse("--rule new_rule --optimizer new_one"))
        text = job.config_text(run, ["a:1"])
        self.assertIn('rule: "new_rule"', text)
        self.assertIn('kind: "new_one"', text)

    def test_monitored_runs_have_names_and_shadow_rules(self):
        run = job.Run(rule="mean", step_scale="adascale", monitoring=True,
                      seed=7)
        text = job.config_text(run, ["a:1"])
        self.assertIn('job: "quickstart-mean-adascale-seed7"', text)
        self.assertEqual(text.count("shadow_rules"), 3)
        single = job.Run(rule="mean", workers=1, monitoring=True)
        self.assertEqual(job.job_name(single), "quickstart-mean-single-seed0")
        plain = job.config_text(job.Run(), ["a:1"])
        self.assertIn('job: "quickstart"\n', plain)
        self.assertNotIn("shadow_rules", plain)

    def test_second_copies_are_asked_for(self):
        self.assertNotIn("replication", job.config_text(job.Run(), ["a:1"]))
        self.assertIn('replication: "buddy"', job.config_text(
            job.Run(replication="buddy"), ["a:1", "a:2"]))

    def test_rounds_drop_an_incomplete_batch(self):
        self.assertEqual(job.Run().rounds(), 44)
        self.assertEqual(job.Run(workers=1).rounds(), 1440)
        self.assertEqual(job.Run(workers=33).rounds(), 42)


class ChaosTest(unittest.TestCase):

    def test_a_plan_follows_from_its_seed(self):
        def plan(seed):
            return chaos.plan(100, 12, ["kill", "pair"],
                              chaos.make_random(seed))

        self.assertEqual(plan(1), plan(1))
        self.assertNotEqual(plan(1), plan(2))
        versions = [version for version, _ in plan(1)]
        self.assertEqual(len(set(versions)), 12)
        self.assertEqual(versions, sorted(versions))
        # The last ones are far enough from the end to be seen.
        self.assertLess(versions[-1], 90)

    def test_neighbours_share_copies(self):
        self.assertEqual(chaos.not_neighbours(4, 0), [2])
        self.assertEqual(chaos.not_neighbours(4, 3), [1])
        self.assertEqual(chaos.not_neighbours(5, 1), [3, 4])
        self.assertEqual(chaos.not_neighbours(3, 1), [])

    def test_ports_are_different_and_not_the_kernels_to_give(self):
        ports = chaos.free_ports(8)
        self.assertEqual(len(set(ports)), 8)
        self.assertLess(max(ports), 32768)

    def test_the_summary_has_both_results(self):
        text = view.chaos_summary({"parameters_sha256": "ab"},
                                  {"parameters_sha256": "cd"}, [3, 1, 2])
        for part in ("3 kills", "2.00 s (median)", "3.00 s", "ab", "cd"):
            self.assertIn(part, text)


class SummaryTest(unittest.TestCase):

    ROUNDS = [
        {"round": 0, "loss": 2.3, "learning_rate": .05, "gain": 1.0,
         "tau": 1.0, "orthogonality": None},
        {"round": 1, "loss": 2.2, "learning_rate": .05, "gain": 3.0,
         "tau": 4.0, "orthogonality": 0.5},
        {"round": 2, "loss": 2.1, "learning_rate": .05, "gain": 5.0,
         "tau": 9.0, "orthogonality": 0.25},
    ]
    FINAL = {"final": True, "rule": "adasum", "scope": "per_tensor",
             "rounds": 3, "train_loss": [2.2], "test_accuracy": 0.75}

    def entry(self):
        return job.summarize(job.Run(rule="adasum", workers=4), self.ROUNDS,
                             self.FINAL, "ab" * 32, 1.23456)

    def test_has_exactly_the_documented_fields(self):
        entry = self.entry()
        self.assertEqual(list(entry), [
            "rule", "scope", "step_scale", "optimizer", "shards", "workers",
            "batch_per_worker", "learning_rate", "epochs", "seed", "rounds",
            "train_loss", "test_accuracy", "orthogonality", "gain", "tau",
            "parameters_sha256", "seconds"])
        self.assertEqual(entry["orthogonality"],
                         {"first": 0.5, "last": 0.25, "mean": 0.375})
        self.assertEqual(entry["gain"],
                         {"first": 1.0, "last": 5.0, "mean": 3.0})
        self.assertEqual(entry["tau"], 9.0)
        self.assertEqual(json.loads(json.dumps(entry)), entry)

    def test_undefined_values_are_null(self):
        self.assertEqual(job.first_last_mean([None, None]),
                         {"first": None, "last": None, "mean": None})

    def test_views_take_undefined_values(self):
        entry = self.entry()
        entry["orthogonality"] = job.first_last_mean([])
        self.assertIn("sha256 abab", view.summary(entry))
        # An epoch is a life of the shards, and nothing else.
        self.assertIn("3 in 2 passes over the data", view.summary(entry))
        self.assertNotIn("epoch", view.summary(entry))
        line = view.progress_line("sum", 3, self.ROUNDS[0], None)
        self.assertNotIn("orthogonality", line)

    def test_sha256_is_over_the_raw_values_in_manifest_order(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "p.npz"
            data = b""
            with zipfile.ZipFile(path, "w") as archive:
                # The archive's order does not count.
                for i, name in reversed(list(enumerate(job.TENSORS))):
                    header = b"{'descr': '<f4', 'shape': (2,), }\n"
                    values = struct.pack("<2f", i, i + 0.5)
                    archive.writestr(
                        name + ".npy", b"\x93NUMPY\x01\x00"
                        + struct.pack("<H", len(header)) + header + values)
                    data = values + data
            self.assertEqual(job.parameters_sha256(path),
                             hashlib.sha256(data).hexdigest())


class ViewTest(unittest.TestCase):

    def test_table(self):
        table = view.comparison_table(
            [("one worker", 0.88, 0.05, 0.88), ("mean", 0.65, None, None)],
            0.05)
        lines = table.split("\n")
        self.assertEqual(len(lines), 3)
        self.assertIn("accuracy at lr 0.05", lines[0])
        self.assertIn("0.880", lines[1])
        self.assertTrue(lines[2].endswith("-"))
        self.assertEqual(len(set(map(len, lines))), 1)

    def test_plain_progress_has_the_asked_number_of_lines(self):
        out = io.StringIO()
        progress = view.Progress("sum", 44, 10, out)
        for i in range(44):
            progress({"round": i, "loss": 1.0, "orthogonality": 0.1,
                      "gain": 1.0})
        self.assertEqual(out.getvalue().count("\n"), 11)
        self.assertNotIn("\r", out.getvalue())

    def test_best_is_the_lowest_rate_of_equals(self):
        self.assertEqual(
            quickstart.best_of([(.4, .8), (.1, .87), (.2, .87)]), (.1, .87))

    def test_tuned_values_are_of_one_setting_only(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tuned.json"
            options = parse("")
            self.assertIsNone(quickstart.read_tuned(options, path))
            path.write_text(json.dumps(
                {"setting": quickstart.setting(options), "sweeps": {}}))
            self.assertIsNotNone(quickstart.read_tuned(options, path))
            self.assertIsNone(
                quickstart.read_tuned(parse("--workers 16"), path))


class MonitoringTest(unittest.TestCase):

    def test_a_port_in_use_is_not_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            other = monitoring.usable_port(port)
        self.assertNotEqual(other, port)
        self.assertEqual(monitoring.usable_port(other), other)

    def test_targets_replace_each_other(self):
        watcher = monitoring.Monitoring()
        with tempfile.TemporaryDirectory() as folder:
            watcher.folder = pathlib.Path(folder)
            watcher.watch([])
            watcher.watch(["127.0.0.1:1", "127.0.0.1:2"])
            self.assertEqual(
                [path.name for path in watcher.folder.iterdir()],
                ["targets.json"])
            self.assertEqual(
                json.loads((watcher.folder / "targets.json").read_text()),
                [{"targets": ["127.0.0.1:1", "127.0.0.1:2"]}])

    def announced(self, pages):
        """What is said beside a Prometheus that has these pages alone."""

        class Handler(http.server.BaseHTTPRequestHandler):

            def do_GET(self):  # noqa: N802
                if self.path == "/graph":  # Debian's goes on to a 404
                    self.send_response(301)
                    self.send_header("Location", "/graph/")
                else:
                    self.send_response(200 if self.path in pages else 404)
                self.end_headers()

            def log_message(self, *_):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0),
                                             Handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            out = io.StringIO()
            try:
                monitoring.Monitoring(port=server.server_port).announce(out)
            finally:
                server.shutdown()
                thread.join()
        return out.getvalue().replace(
            f"http://127.0.0.1:{server.server_port}", "URL")

    def test_links_are_those_that_the_prometheus_has(self):
        text = self.announced({"/classic/alerts", "/classic/graph"})
        self.assertIn("(alerts: URL/classic/alerts)", text)
        self.assertIn("URL/classic/graph?g0.expr=aggserver_orthogonality",
                      text)
        text = self.announced({"/alerts", "/graph/"})
        self.assertIn("(alerts: URL/alerts)", text)
        self.assertIn("URL/graph?g0.expr=", text)
        text = self.announced(set())
        self.assertIn("Prometheus:  URL\n", text)
        self.assertNotIn("URL/", text)

    def test_says_where_the_shards_are(self):
        out = io.StringIO()
        monitoring.announce_shards(["127.0.0.1:5", "127.0.0.1:6"], out)
        for url in ("http://127.0.0.1:5/\n", "http://127.0.0.1:6/metrics"):
            self.assertIn(url, out.getvalue())


class ProcessesTest(unittest.TestCase):

    def test_a_failure_shows_its_log_and_everything_ends(self):
        with tempfile.TemporaryDirectory() as folder:
            processes = job.Processes(pathlib.Path(folder))
            waiting = processes.start(
                "shard_0", [sys.executable, "-c", "input(); print(1)"])
            waiting.wait()  # no input: it fails
            sleeping = processes.start(
                "worker_1",
                [sys.executable, "-c", "import signal; signal.pause()"])
            with self.assertRaisesRegex(job.RunError, "(?s)shard_0.*EOFError"):
                processes.check()
            processes.stop()
            self.assertIsNotNone(sleeping.returncode)

    def test_nothing_of_a_persons_own_job_reaches_a_local_one(self):
        own = {name: "/of/my/job" for name in (
            "AGG_COORDINATOR", "AGG_TLS_CA", "AGG_TLS_CERTIFICATE",
            "AGG_TLS_KEY", "AGG_TLS_SERVER_NAME", "AGG_TOKEN_FILE")}
        say = ("import os; print([(name, os.environ.get(name)) for name in "
               f"{sorted([*own, 'AGG_LIBRARY'])} if name in os.environ])")
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(
                os.environ, own, AGG_LIBRARY="/lib"):
            processes = job.Processes(pathlib.Path(folder))
            processes.start("worker_0", [sys.executable, "-c", say]).wait()
            processes.start("worker_1", [sys.executable, "-c", say],
                            more={"AGG_TOKEN_FILE": "/of/the/run"}).wait()
            processes.check()
            said = [(pathlib.Path(folder) / f"worker_{i}.log").read_text()
                    for i in range(2)]
            self.assertEqual(os.environ["AGG_TOKEN_FILE"], "/of/my/job")
        self.assertEqual(said[0], "[('AGG_LIBRARY', '/lib')]\n")
        self.assertEqual(said[1], "[('AGG_LIBRARY', '/lib'), "
                         "('AGG_TOKEN_FILE', '/of/the/run')]\n")

    def test_a_shards_failure_is_named_before_its_workers(self):
        with tempfile.TemporaryDirectory() as folder:
            processes = job.Processes(pathlib.Path(folder))
            for name in ("worker_0", "shard_1"):
                processes.start(
                    name, [sys.executable, "-c", "raise SystemExit(3)"]).wait()
            with self.assertRaisesRegex(job.RunError, "^shard_1 .*with 3"):
                processes.check()
            processes.stop()


if __name__ == "__main__":
    unittest.main()
