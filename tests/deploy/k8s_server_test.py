"""What the server itself says of the flags and the configurations of deploy/k8s,
and the tools of the commands."""

import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).absolute().parent.parent.parent
K8S = ROOT / "deploy/k8s"


class ServerTest(unittest.TestCase):
    def test_it_takes_the_flags_and_the_configurations(self):
        binary = pathlib.Path(os.environ.get(
            "AGG_BIN", ".")).resolve() / "server/agg_server"
        text = (K8S / "base/statefulset.yaml").read_text()
        flags = re.findall(r"- (--\S+)", text)
        self.assertIn("--shard=auto", flags)
        for config in ("base", "overlays/gpu", "overlays/tls",
                       "examples/checkpoints", "examples/autoscale"):
            words = [re.sub(r"^--config=.*",
                            f"--config={K8S / config / 'job.textproto'}", word)
                     for word in flags]
            result = subprocess.run([str(binary), *words, "--validate"],
                                    capture_output=True, text=True,
                                    check=False)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_the_guide_says_how_long_a_drain_takes(self):
        (here,) = re.findall(r"- --drain_seconds=(\d+)",
                             (K8S / "base/statefulset.yaml").read_text())
        unit = (ROOT / "deploy/deb/agg_server@.service").read_text()
        (packaged,) = re.findall(r" --drain_seconds=(\d+) ", unit)
        guide = (ROOT / "deploy/docs/operate.md").read_text()
        self.assertEqual(
            re.findall(r"within `--drain_seconds` \((\d+) in `deploy/k8s` and "
                       "in the Debian package", guide), [here])
        self.assertEqual(packaged, here)
        # The pod's and the unit's time to end.
        self.assertEqual(re.findall(r"The pod has (\d+) seconds", guide),
                         re.findall(r"terminationGracePeriodSeconds: (\d+)",
                                    (K8S / "base/statefulset.yaml")
                                    .read_text()))
        (stop,) = re.findall(r"(?m)^TimeoutStopSec=(\d+)$", unit)
        self.assertGreater(int(stop), int(packaged) + 5)

    def test_the_commands_of_the_guide_exist(self):
        """Those that are run inside of pods: their programs are in the image."""
        guide = "".join(path.read_text() for path in sorted(
            (ROOT / "deploy/docs").glob("*.md")))
        bundle = (ROOT / "deploy/bundle.sh").read_text()
        binaries = pathlib.Path(os.environ.get("AGG_BIN", ".")).resolve()
        commands = re.findall(r"exec agg-0 -- (\w+) (\w+)", guide)
        self.assertTrue(commands)
        for program, command in commands:
            self.assertRegex(bundle, rf"(?m)^  //worker_client/tools:{program}$")
            result = subprocess.run(
                [str(binaries / "worker_client/tools" / program), command,
                 "--help"], capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
        job = (K8S / "examples/save_model/job.yaml").read_text()
        (program,) = re.findall(r"- /opt/agg_server/bin/(\w+)", job)
        self.assertRegex(bundle, rf"(?m)^  //worker_client/tools:{program}$")
        usage = subprocess.run(
            [str(binaries / "worker_client/tools" / program), "--help"],
            capture_output=True, text=True, check=False).stdout
        for name in re.findall(r"- (--\w+)=", job):
            self.assertIn(name, usage)


if __name__ == "__main__":
    unittest.main()
