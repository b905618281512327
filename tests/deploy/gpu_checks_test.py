"""The bundle's run_gpu_checks.sh reports what happened and nothing better, in
its time. Its programs are stand-ins but for gpu_report, which writes the report,
and so is its clock.
"""

import json
import pathlib
import unittest

from tests.deploy.stand_ins import Folder, google_test, script

ROOT = pathlib.Path(__file__).absolute().parent.parent.parent


# For a program: the clock of the test goes on by so many seconds.
PASSES = """read -r now _ <"$AGG_UPTIME"
echo "$((${{now%.*}} + {seconds})).25 9" >"$AGG_UPTIME"
"""
SANITIZED = "shift 4; \"$@\"; echo 'ERROR SUMMARY: 0 errors'"
SMI = """echo 'name, driver_version, pci.bus_id, ecc.mode.current'
echo 'NVIDIA Test, 580.65.06, 00000000:41:00.0, [N/A]'
"""

# As cuda_kernels writes them, which //tests/bench/report:emulated_report_test
# runs.
KERNELS = {
    "program": "cuda_kernels", "complete": True,
    "card": {"name": "NVIDIA Test", "pci_bus_id": "0000:41:00.0"},
    "rows": [{"kernel": "gram", "route": "hand", "P": 32, "dtype": "f32",
              "optimizer": None,
              "gb_per_s": {"median": 3, "min": 2, "max": 4},
              "share_of_copy": {"median": 0.81, "min": 0.8, "max": 0.9}}]}


class GpuChecksTest(Folder):

    def setUp(self):
        super().setUp()
        script(self.folder / "run_gpu_checks.sh",
               (ROOT / "deploy/bundle/run_gpu_checks.sh").read_text())
        script(self.folder / "bin/agg_server", "exit 2")
        (self.folder / "lib").mkdir()
        (self.folder / "lib/glibc_needed").write_text("2.0\n")
        (self.folder / "lib/revision").write_text("abc1234\n")
        self.program("cpu_conformance_test", google_test(ok=4))
        self.program("cuda_conformance_test", google_test(ok=3))
        self.program("cuda_jobs_test", google_test(ok=2))
        self.program("cuda_kernels", "echo 'gram 1 GB/s'")
        self.program("round_gpu", "echo 'round 1 s'")
        self.program("round_device", "echo 'device 1 s'")
        self.program("round_loopback", "echo \"rounds, $*\"")
        (self.folder / "checks/gpu_report").symlink_to(
            ROOT / "tests/bench/report/gpu_report")
        self.gpu = "nonexistent"
        self.uptime = self.folder / "uptime"

    def program(self, name, text):
        script(self.folder / "checks" / name, text)

    def sanitizer(self, text=SANITIZED):
        script(self.folder / "path/compute-sanitizer", text)

    def checks(self, *arguments):
        """The exit status, the last line, and all of the output."""
        self.uptime.write_text("1000.75 9\n")
        status, output = self.run_script(
            self.folder / "run_gpu_checks.sh", *arguments,
            AGG_GPU_DEVICE=str(self.folder / self.gpu),
            AGG_UPTIME=str(self.uptime))
        return status, output.splitlines()[-1], output

    def report(self):
        """The JSON report, and its checks by their names."""
        text = (self.folder / "agg_gpu_checks/gpu_checks.json").read_text()
        report = json.loads(text)
        return report, {check["name"]: check for check in report["checks"]}

    def without_gpu(self):
        self.program("cuda_conformance_test", google_test(skipped=3))
        self.program("cuda_jobs_test", google_test(skipped=2))
        for name in ("cuda_kernels", "round_gpu", "round_device",
                     "round_loopback"):
            self.program(name, "echo 'SKIPPED: no CUDA device: none'")

    # --- What happened --------------------------------------------------------

    def test_everything_passes(self):
        self.sanitizer()
        status, counts, output = self.checks()
        self.assertEqual(counts, "26 passed, 0 failed", output)
        self.assertEqual(status, 0)
        self.assertIn("gram 1 GB/s", output)
        self.assertIn("round 1 s", output)
        self.assertIn("rounds, --backend=cuda", output)

    def test_without_a_gpu_its_half_is_skipped(self):
        self.without_gpu()
        status, counts, output = self.checks()
        self.assertEqual(counts, "5 passed, 0 failed, 14 skipped", output)
        self.assertEqual(status, 0)
        self.assertIn("skipped  memcheck: no CUDA device", output)
        self.assertIn("NO CHECK RAN ON A GPU", output)
        status, counts, output = self.checks("--cpu")
        self.assertEqual(counts, "5 passed, 0 failed", output)
        self.assertEqual(status, 0)
        # Wanted, or there: then it is not green.
        status, counts, output = self.checks("--gpu")
        self.assertEqual(counts, "5 passed, 1 failed, 13 skipped", output)
        self.assertEqual(status, 1)
        self.gpu = "run_gpu_checks.sh"
        status, counts, output = self.checks()
        self.assertEqual(counts, "5 passed, 1 failed, 13 skipped", output)
        self.assertEqual(status, 1)

    def test_a_case_that_needs_no_gpu_is_not_one_on_a_gpu(self):
        self.without_gpu()
        self.program("cuda_conformance_test", google_test(ok=1, skipped=3))
        status, counts, output = self.checks()
        self.assertEqual(counts, "6 passed, 0 failed, 14 skipped", output)
        self.assertIn("NO CHECK RAN ON A GPU", output)
        self.assertIn("3 cases were skipped, no CUDA device",
                      self.report()[1]["cuda_conformance"]["reason"])
        self.assertEqual(self.checks("--gpu")[0], 1)

    def test_failures_count_case_by_case(self):
        self.program("cuda_jobs_test", google_test(ok=2, failed=2, skipped=1))
        status, counts, output = self.checks("--no-bench")
        self.assertEqual(counts, "10 passed, 2 failed, 5 skipped", output)
        self.assertEqual(status, 1)
        check = self.report()[1]["cuda_jobs"]
        self.assertEqual(check["verdict"], "failed")
        self.assertEqual(check["cases"],
                         {"passed": 2, "failed": 2, "skipped": 1})

    def test_a_crash_and_a_filter_without_cases_fail(self):
        for text in (google_test(ok=2, status=139), google_test()):
            self.program("cuda_jobs_test", text)
            status, counts, output = self.checks("--no-bench")
            self.assertIn(" 1 failed", counts, output)
            self.assertEqual(status, 1)

    def test_the_sanitizers_verdict(self):
        run = "shift 4; \"$@\"; "
        for text, counts in (
                # It does not work here.
                ("echo 'no rights'; exit 1",
                 "10 passed, 0 failed, 4 skipped"),
                (run + "echo 'ERROR SUMMARY: 1 error'; exit 7",
                 "22 passed, 4 failed"),
                # It says nothing, which is not that all is well.
                (run, "22 passed, 4 failed"),
                ("[[ $2 == racecheck ]] && s='RACECHECK SUMMARY: 0 hazards "
                 "displayed (0 errors)' || s='ERROR SUMMARY: 0 errors'; "
                 + run + "echo \"$s\"", "22 passed, 0 failed")):
            with self.subTest(text):
                self.sanitizer(text)
                status, line, output = self.checks("--no-bench")
                self.assertEqual(line, counts, output)
                self.assertEqual(status, int(" 0 failed" not in counts))

    def test_what_is_not_understood_is_refused(self):
        for argument in ("--fast", "--limit=", "--limit=0", "--limit=1e3",
                         "--budget=cuda_jobs", "--budget=cuda_jobs:",
                         "--budget=other:5"):
            status, _, output = self.checks(argument)
            self.assertEqual(status, 2, argument)
            self.assertIn("--limit=SECONDS", output)

    # --- The report -----------------------------------------------------------

    def test_the_report_has_it_all(self):
        script(self.folder / "path/nvidia-smi", SMI)
        self.sanitizer()
        self.program("cuda_kernels", f"""[[ $1 == --json=* ]] || exit 1
            echo '{json.dumps(KERNELS)}' >"${{1#*=}}"
            """ + PASSES.format(seconds=7))
        status, _, output = self.checks("--limit=400")
        self.assertEqual(status, 0, output)
        report, checks = self.report()
        self.assertEqual(report["schema"], 1)
        self.assertEqual(report["verdict"], "passed")
        self.assertEqual(report["revision"], "abc1234")
        self.assertRegex(report["date"], r"^20\d\d-\d\d-\d\dT[\d:]*Z$")
        self.assertEqual((report["seconds"], report["limit_s"]), (7, 400))
        self.assertTrue(report["host"]["kernel"].startswith("Linux "))
        self.assertEqual(report["card"]["driver"], "580.65.06")
        self.assertEqual(checks["cuda_kernels"]["seconds"], 7)
        self.assertEqual(checks["cuda_kernels"]["verdict"], "passed")
        self.assertEqual(list(checks), [
            "starts_agg_server", "cuda_conformance", "cuda_jobs",
            "cuda_kernels", "round_gpu", "round_device", "round_loopback",
            "cpu_conformance",
            "memcheck", "racecheck", "synccheck", "initcheck"])
        verdicts = {target["name"]: target["verdict"]
                    for target in report["targets"]}
        self.assertEqual(verdicts["gram_f32_32"], "met")
        self.assertEqual(verdicts["update_f32"], "not measured")
        table = (self.folder / "agg_gpu_checks/gpu_checks.markdown").read_text()
        self.assertIn("| gram, hand | 32 | f32 |  | 3 GB/s (2 .. 4) | "
                      "81% (80 .. 90) | >= 80% | met |", table)

    def test_without_a_gpu_the_report_says_so(self):
        self.without_gpu()
        _, _, output = self.checks()
        report, checks = self.report()
        self.assertEqual(report["verdict"], "passed", output)
        self.assertEqual(checks["round_gpu"]["verdict"], "skipped")
        self.assertIn("no CUDA device", checks["round_gpu"]["reason"])
        self.assertIn("no CUDA device", checks["cuda_jobs"]["reason"])
        self.assertEqual({target["verdict"] for target in report["targets"]},
                         {"not measured"})

    def test_numbers_of_an_earlier_run_are_not_in_it(self):
        logs = self.folder / "agg_gpu_checks"
        logs.mkdir()
        (logs / "cuda_kernels.json").write_text(json.dumps(KERNELS))
        self.checks("--no-bench")
        self.assertEqual(self.report()[0]["rows"], [])

    def test_a_report_that_cannot_be_written_fails(self):
        (self.folder / "checks/gpu_report").unlink()
        self.program("gpu_report", "echo no; exit 1")
        status, counts, output = self.checks("--cpu")
        self.assertEqual(counts, "5 passed, 1 failed", output)
        self.assertEqual(status, 1)
        self.assertIn("FAILED   gpu_report: status 1", output)

    # --- Its time -------------------------------------------------------------

    def test_what_overruns_its_budget_is_killed_and_fails(self):
        # With a real clock, on both ends of it: it would wait for ever.
        child = self.folder / "child"
        self.program("cuda_jobs_test", f"""
            echo '[==========] Running 2 tests from 1 test suite.'
            echo '[       OK ] A.Ok (1 ms)'
            sleep infinity &
            echo $! >{child}
            wait
            """)
        status, counts, output = self.checks("--no-bench",
                                             "--budget=cuda_jobs:1")
        self.assertEqual(counts, "9 passed, 1 failed, 4 skipped", output)
        self.assertEqual(status, 1)
        self.assertIn("FAILED   cuda_jobs: killed at its limit of 1 s", output)
        check = self.report()[1]["cuda_jobs"]
        self.assertEqual((check["verdict"], check["limit_s"]), ("failed", 1))
        self.assertIn("killed at its limit of 1 s", check["reason"])
        # And so are the programs that it has started.
        state = pathlib.Path(f"/proc/{child.read_text().strip()}/status")
        self.assertTrue(not state.exists() or "Z (zombie)" in state.read_text())

    def test_what_does_not_fit_any_more_is_skipped(self):
        self.program("cuda_jobs_test",
                     PASSES.format(seconds=300) + google_test(ok=2))
        self.program("cuda_kernels", PASSES.format(seconds=70) + "echo fast")
        self.sanitizer()
        status, counts, output = self.checks()
        self.assertEqual(status, 0, output)
        # 480 - 300 - 70, and 16 are kept: 94.
        self.assertEqual(counts, "26 passed, 0 failed", output)
        self.program("cuda_jobs_test",
                     PASSES.format(seconds=350) + google_test(ok=2))
        status, counts, output = self.checks()
        self.assertIn("skipped  round_gpu: its 45 s do not fit into the 44 s "
                      "that are left of --limit=480", output)
        self.assertIn("passed   round_loopback", output)
        self.assertIn("passed   memcheck", output)
        self.assertEqual(status, 0)
        report, checks = self.report()
        self.assertEqual(checks["round_gpu"]["verdict"], "skipped")
        self.assertEqual(report["seconds"], 420)

    def test_the_budgets_fit_into_the_default_limit(self):
        # Each part but the sanitizers takes all that it may.
        script_text = (self.folder / "run_gpu_checks.sh").read_text()
        declared = script_text.split("declare -A budget=(")[1].split(")")[0]
        budget = {}
        for word in declared.split():
            name, seconds = word.lstrip("[").split("]=")
            budget[name] = int(seconds)
        for name in ("cuda_conformance", "cuda_jobs", "cpu_conformance"):
            self.program(f"{name}_test", PASSES.format(seconds=budget[name])
                         + google_test(ok=1))
        for name in ("cuda_kernels", "round_gpu", "round_device",
                     "round_loopback"):
            self.program(name, PASSES.format(seconds=budget[name]))
        # As many programs as a bundle has.
        (self.folder / "bin/agg_server").unlink()
        for i in range(7):
            script(self.folder / f"bin/tool{i}",
                   PASSES.format(seconds=budget["starts"]))
        status, counts, output = self.checks()
        self.assertEqual(counts, "14 passed, 0 failed, 4 skipped", output)
        self.assertEqual(status, 0)
        self.assertIn("skipped  memcheck: no compute-sanitizer", output)

    def test_sanitizers_have_what_is_left(self):
        # All but the first, short try would run for ever.
        self.sanitizer("""shift 4
            case $* in
              *:*)
                echo '========= COMPUTE-SANITIZER'
                "$@"
                exec sleep infinity
                ;;
            esac
            "$@"; echo 'ERROR SUMMARY: 0 errors'
            """)
        self.program("cpu_conformance_test",
                     PASSES.format(seconds=463) + google_test(ok=4))
        status, counts, output = self.checks("--no-bench",
                                             "--budget=sanitizer:1")
        self.assertEqual(counts, "10 passed, 0 failed, 4 skipped", output)
        self.assertEqual(status, 0)
        self.assertIn("skipped  memcheck: cut off after 1 s, which were left: "
                      "3 cases had passed", output)

    def test_a_sanitizer_that_is_cut_off_after_a_finding_has_failed(self):
        self.sanitizer("""shift 4
            case $* in
              *:*)
                echo '========= COMPUTE-SANITIZER'
                echo '========= Invalid __global__ read of size 4 bytes'
                exec sleep infinity
                ;;
            esac
            "$@"; echo 'ERROR SUMMARY: 0 errors'
            """)
        self.program("cpu_conformance_test",
                     PASSES.format(seconds=463) + google_test(ok=4))
        status, counts, output = self.checks("--no-bench",
                                             "--budget=sanitizer:1")
        self.assertEqual(counts, "10 passed, 4 failed", output)
        self.assertEqual(status, 1)
        self.assertIn("FAILED   memcheck: killed at its limit of 1 s", output)


if __name__ == "__main__":
    unittest.main()
