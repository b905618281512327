"""The benchmark's pure parts: options, medians, ratios, tables, the chart."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from xml.etree import ElementTree

from deploy import bench
from deploy import bench_chart as chart
from deploy import bench_facts
from deploy import bench_numbers as numbers
from deploy import bench_options
from deploy import bench_page
from deploy import bench_report as report
from deploy import bench_systems as systems
from deploy import bench_team
from deploy import quickstart_job as job

MB = 10**6
FACTS = dict(zip(numbers.FACTS, ("2026-11-23", "a machine", "2.15", "abc")))


def agg(rule="adasum", transport="tcp", workers=4, shards=1, size=100 * MB,
        dtype="f32"):
    return systems.System("agg", transport, rule, dtype, workers, shards, size)


def gloo(workers=4, size=100 * MB):
    return systems.System("gloo", "tcp", "sum", "f32", workers, 0, size)


def results():
    """Entries with ratios: two sizes, gloo in both."""
    return numbers.add_ratios([
        numbers.make_entry(gloo(), [100.0, 110.0, 90.0]),
        numbers.make_entry(agg(), [200.0, 150.0, 300.0]),
        numbers.make_entry(agg("mean"), [190.0]),
        numbers.make_entry(gloo(size=4000), [8.0]),
        numbers.make_entry(agg(size=4000), [2.0])])


class OptionsTest(unittest.TestCase):

    def test_defaults_are_the_experiment(self):
        options = bench_options.parse([])
        self.assertEqual(options.sizes, (100 * MB, 4 * MB, 4000))
        self.assertEqual(options.workers, (2, 4, 8))
        self.assertEqual(options.rules, ("mean", "adasum", "adacons"))
        self.assertEqual(options.transports, ("tcp", "unix", "shm_copy", "shm"))
        self.assertGreaterEqual(options.rounds, 7)
        self.assertEqual((options.warmups, options.shards), (2, (1,)))

    def test_quick_is_small_where_nothing_else_is_said(self):
        options = bench_options.parse(["--quick", "--workers=4,2,4"])
        self.assertLessEqual(max(options.sizes), MB)
        self.assertEqual(options.workers, (4, 2))
        self.assertEqual(options.dtypes, ("f32",))

    def test_rows_in_place_are_float32(self):
        for name, dtype, takes in (("shm", "f32", True), ("shm", "int8", False),
                                   ("shm_copy", "int8", True)):
            self.assertEqual(systems.TRANSPORTS[name].takes(dtype), takes)

    def test_sizes_are_decimal(self):
        options = bench_options.parse(["--sizes=1GB,4MB,4KB,128"])
        self.assertEqual(options.sizes, (10**9, 4 * MB, 4000, 128))

    def test_errors_name_flag_value_and_what_is_allowed(self):
        for text, parts in {
                "--sizes=4TB": ("--sizes", "'4TB'", "100MB"),
                "--sizes=6": ("--sizes", "'6'", "multiple of 4"),
                "--workers=0": ("--workers", "'0'", "1..64"),
                "--rounds=x": ("--rounds", "'x'", "1..1000"),
                "--transports=udp": ("--transports", "'udp'", "tcp, unix"),
                "--rules=a;b": ("--rules", "'a;b'", "a name"),
                "--jso=x --what": ("--what",)}.items():
            stderr = io.StringIO()
            with self.subTest(text), contextlib.redirect_stderr(stderr):
                with self.assertRaises(SystemExit) as exit_:
                    bench_options.parse(text.split())
                self.assertEqual(exit_.exception.code, 2)
                for part in parts:
                    self.assertIn(part, stderr.getvalue())
                self.assertEqual(stderr.getvalue().count("\n"), 1)


class NumbersTest(unittest.TestCase):

    def test_a_round_is_from_the_first_begin_to_the_last_end(self):
        lines = [[{"begin": 1_000_000, "end": 4_000_000},
                  {"begin": 10_000_000, "end": 11_500_000}],
                 [{"begin": 2_000_000, "end": 6_000_000},
                  {"begin": 10_500_000, "end": 11_000_000}]]
        self.assertEqual(numbers.round_milliseconds(lines), [5.0, 1.5])

    def test_an_entry_has_exactly_the_documented_keys(self):
        entry = numbers.make_entry(agg(), [3.0, 1.0, 2.0, 10.0])
        self.assertEqual(tuple(entry), numbers.KEYS)
        self.assertEqual((entry["median_ms"], entry["min_ms"],
                          entry["max_ms"]), (2.5, 1.0, 10.0))
        self.assertEqual((entry["system"], entry["transport"], entry["rule"],
                          entry["dtype"], entry["workers"], entry["shards"],
                          entry["bytes_per_worker"]),
                         ("agg", "tcp", "adasum", "f32", 4, 1, 100 * MB))

    def test_ratios_are_to_gloo_of_the_same_workers_and_bytes(self):
        self.assertEqual([entry["ratio_to_gloo"] for entry in results()],
                         [1.0, 2.0, 1.9, 1.0, 0.25])

    def test_there_is_no_ratio_without_gloo(self):
        entries = numbers.add_ratios([
            numbers.make_entry(gloo(workers=2), [1.0]),
            numbers.make_entry(agg(), [1.0])])
        self.assertIsNone(entries[1]["ratio_to_gloo"])
        text = numbers.to_json(FACTS, entries)
        self.assertEqual(numbers.of_json(text), {**FACTS, "results": entries})
        self.assertEqual(text.count("\n"), 9)

    def test_results_without_their_facts_are_refused(self):
        for text in ("[]", '{"results": []}', "no JSON"):
            with self.assertRaises(ValueError):
                numbers.of_json(text)

    def test_the_facts_are_of_this_run(self):
        with tempfile.TemporaryDirectory() as folder:
            venv = pathlib.Path(folder)
            (venv / "lib/python3.11/site-packages/torch-2.0.1.dist-info"
             ).mkdir(parents=True)
            facts = bench_facts.facts(str(venv / "bin/python"))
            self.assertEqual(tuple(facts), numbers.FACTS)
            self.assertRegex(facts["date"], r"^\d{4}-\d\d-\d\d$")
            self.assertRegex(facts["machine"], r".+, \d+ CPUs, .+")
            self.assertEqual(facts["pytorch"], "2.0.1")
            self.assertEqual(bench_facts.pytorch(""), "none")
            self.assertEqual(bench_facts.commit(venv), "unknown")

    def test_groups_fit_into_memory_and_keep_their_order(self):
        rules = [agg(rule) for rule in "abcde"]
        needed = numbers.memory_estimate(rules[0])
        self.assertGreater(needed, 4 * 4 * 100 * MB)
        self.assertEqual(numbers.pack(rules, 2.5 * needed),
                         [rules[:2], rules[2:4], rules[4:]])
        # What fits nowhere is tried alone.
        self.assertEqual(numbers.pack(rules[:2], 1), [rules[:1], rules[1:2]])
        self.assertEqual(numbers.pack([], 1), [])

    def test_shares_are_parts_of_the_mean_round(self):
        parts = numbers.shares(
            {"wait": 9.0, "gram": 0.02, "update": 0.03, "decide": 0.001,
             "norms": 0.004}, [90.0, 110.0])
        self.assertAlmostEqual(parts["gram"], 0.2)
        self.assertAlmostEqual(parts["update"], 0.3)
        self.assertAlmostEqual(parts["publish"], 0.0)
        self.assertAlmostEqual(parts["other"], 0.05)
        self.assertAlmostEqual(sum(parts.values()), 1.0)


class SystemsTest(unittest.TestCase):

    def test_the_configuration_names_what_was_asked_for(self):
        text = systems.config_text(
            agg("adacons", workers=3, shards=2, dtype="int8"),
            ["127.0.0.1:1", "127.0.0.1:2"])
        for part in ('shards: "127.0.0.1:2"', "workers: 3",
                     'rule: "adacons"', 'push_dtype: "int8"',
                     'pull_dtype: "bf16"', 'replication: "none"'):
            self.assertIn(part, text)
        text = systems.config_text(agg(dtype="bf16"), ["127.0.0.1:1"])
        self.assertIn('pull_dtype: "bf16"', text)


class TeamTest(unittest.TestCase):

    def test_a_worker_that_fails_ends_the_run_with_its_log(self):
        for program in ("raise SystemExit('lost')",
                        "print('{}', flush=True); exit('lost')"):
            with self.subTest(program), bench_team.Team(agg()) as team:
                team.start_worker([sys.executable, "-c", program])
                with self.assertRaisesRegex(job.RunError, "(?s)worker_0.*lost"):
                    team.wait_until_ready()
                    team.ask(1)

    def test_a_workers_lines_may_come_in_pieces(self):
        program = ("import sys, time\n"
                   "sys.stdout.write('{\"ready\": true}\\n{\"be')\n"
                   "sys.stdout.flush()\n"
                   "input()\n"
                   "print('gin\": 1}', '{\"begin\": 2}', sep='\\n')\n"
                   "sys.stdout.flush()\n"
                   "input()\n")
        with bench_team.Team(agg()) as team:
            for _ in range(2):
                team.start_worker([sys.executable, "-c", program])
            team.wait_until_ready()
            self.assertEqual(team.ask(2), [[{"begin": 1}, {"begin": 2}]] * 2)


class ReportTest(unittest.TestCase):

    RAW = bench.Sample(milliseconds=[50.0, 60.0], lines=[
        {"memcpy_1": 10.0, "memcpy_2": 11.0, "read_1": 20.0, "read_2": 21.0},
        {"memcpy_1": 12.0, "memcpy_2": 11.0, "read_1": 20.0, "read_2": 21.0}])

    def test_a_table_has_floors_peers_and_shares(self):
        entries = results()[:2]
        samples = [
            bench.Sample(milliseconds=[100.0] * 3, cpu_seconds=(0.0, 1.2)),
            bench.Sample(milliseconds=[200.0] * 3, cpu_seconds=(1.2, 1.2),
                         phase_seconds={"gram": 0.02, "wait": 1.0},
                         peak_bytes=1100 * MB, planned_bytes=1e9)]
        text = report.cell_table(entries, samples, {"raw": self.RAW})
        lines = text.split("\n")
        self.assertEqual(lines[0], "P = 4, 100 MB of float32 per worker")
        self.assertIn("memcpy 11.0 GB/s with a thread", lines[1])
        self.assertEqual(lines[3].split()[:2], ["raw", "sockets"])
        self.assertIn("55.00", lines[3])
        self.assertEqual(lines[5].split(), [
            "agg", "tcp", "adasum", "f32", "200.00", "150.00", "300.00",
            "2.00", "90%", "10%", "0%", "0%", "0%", "1100", "1000", "1.10",
            "1.00", "0.50"])
        self.assertEqual(len({len(line) for line in lines[2:]}), 1)

    def test_sizes_have_their_units(self):
        self.assertEqual([report.size_text(size) for size in (
            128, 4000, 64_000, 100 * MB, 2 * 10**9)],
            ["128 B", "4 KB", "64 KB", "100 MB", "2 GB"])


class ChartTest(unittest.TestCase):

    def test_it_is_an_image_with_a_bar_for_each_result(self):
        root = ElementTree.fromstring(chart.svg(results()))
        space = "{http://www.w3.org/2000/svg}"
        bars = root.findall(f"{space}rect")[1:]  # behind the background
        self.assertEqual(len(bars), 4)  # not the mean's
        widths = [float(bar.get("width")) for bar in bars]
        self.assertAlmostEqual(widths[1] / widths[0], 2.0, places=2)
        self.assertAlmostEqual(widths[3] / widths[2], 0.25, places=2)
        texts = [text.text for text in root.findall(f"{space}text")]
        for text in ("100 MB of float32 per worker, P = 4",
                     "200 ms (2.00 x gloo)", "gloo all_reduce, f32",
                     "agg tcp, f32"):
            self.assertIn(text, texts)

    def test_without_gloo_the_fastest_is_the_unit(self):
        entries = numbers.add_ratios([
            numbers.make_entry(agg(dtype="bf16"), [2.0]),
            numbers.make_entry(agg(), [2000.0])])
        text = chart.svg(entries)
        self.assertIn(">2000 ms<", text)
        self.assertNotIn("x gloo)", text)

    def test_the_command_writes_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "in.json"
            target = pathlib.Path(folder) / "out.svg"
            source.write_text(numbers.to_json(FACTS, results()))
            self.assertEqual(chart.main([str(source), str(target)]), 0)
            self.assertEqual(target.read_text(), chart.svg(results()))
            with contextlib.redirect_stderr(io.StringIO()) as stderr:
                self.assertEqual(
                    chart.main([str(source), str(target), "sum_"]), 1)
                self.assertEqual(chart.main([str(source)]), 2)
            self.assertIn("no results of rule sum_", stderr.getvalue())

    def test_the_committed_chart_is_of_the_committed_results(self):
        folder = pathlib.Path("deploy")
        entries = numbers.of_json(
            (folder / "bench.json").read_text())["results"]
        for entry in entries:
            self.assertEqual(tuple(entry), numbers.KEYS)
        self.assertEqual((folder / "bench.svg").read_text(),
                         chart.svg(entries))


class PageTest(unittest.TestCase):
    """The tables of deploy/docs/performance.md."""

    RUN = {**FACTS, "results": results()}

    def test_a_cell_is_the_median_and_by_gloos(self):
        lines = bench_page.section(self.RUN).splitlines()
        self.assertEqual(
            lines[0], "Date: 2026-11-23. Machine: a machine. PyTorch (gloo): "
            "2.15. Commit: abc.")
        self.assertIn("| TCP | 4 | 100 | 200 (2.00) |  |  |", lines)
        # Gloo was not asked for 4 MB, and nobody for the Unix socket.
        self.assertIn("| 4 MB | 4 |  |  |  |  |  |", lines)
        self.assertIn("| 4 KB | 4 | 8.00 | 2.00 (0.25) |  |  |  |", lines)
        self.assertIn("| TCP | 190 (1.90) | 200 (2.00) |  |", lines)

    def test_the_rest_of_the_page_stays(self):
        page = ("before\n<!-- of deploy/bench_page.py: begin -->\nold\n"
                "<!-- of deploy/bench_page.py: end -->\nafter\n")
        text = bench_page.replaced(page, self.RUN)
        self.assertTrue(text.startswith("before\n"))
        self.assertTrue(text.endswith("\nafter\n"))
        self.assertNotIn("old", text)
        self.assertEqual(bench_page.replaced(text, self.RUN), text)
        with self.assertRaises(ValueError):
            bench_page.replaced("before\nafter\n", self.RUN)

    def test_the_command_writes_the_page(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "in.json"
            page = pathlib.Path(folder) / "page"
            source.write_text(numbers.to_json(FACTS, results()))
            page.write_text("no comments\n")
            with contextlib.redirect_stderr(io.StringIO()) as stderr:
                self.assertEqual(bench_page.main([str(source)]), 2)
                self.assertEqual(bench_page.main([str(source), str(page)]), 1)
            self.assertIn("the page lacks", stderr.getvalue())

    def test_the_committed_page_is_of_the_committed_results(self):
        folder = pathlib.Path("deploy")
        page = pathlib.Path("deploy/docs/performance.md").read_text()
        run = numbers.of_json((folder / "bench.json").read_text())
        # /usr/bin/python3 deploy/bench_page.py deploy/bench.json \
        #     deploy/docs/performance.md
        self.assertEqual(bench_page.replaced(page, run), page)


if __name__ == "__main__":
    unittest.main()
