"""The three commands of deploy/docs/security.md that set mutual TLS up, as they
stand there: in a network namespace, since their job has a fixed port."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path.cwd()
WAIT = 120
# Where ip may be, and a service's PATH may not lead.
os.environ["PATH"] = ":".join(
    [os.environ.get("PATH", "/usr/bin:/bin"), "/usr/sbin", "/sbin"])
UNSHARE = ["unshare", "--net"] + (
    [] if os.geteuid() == 0 else ["--user", "--map-root-user"])


def commands():
    """The block, one line a command."""
    text = (ROOT / "deploy/docs/security.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"\n## TLS\n\nMutual TLS on one machine, in three "
                          r"commands.*?```sh\n(.*?)```", text, re.S)
    return block.splitlines()


def why_not():
    for program in ("unshare", "ip", "openssl"):
        if shutil.which(program) is None:
            return f"needs the program {program}"
    made = subprocess.run([*UNSHARE, "ip", "link", "set", "lo", "up"],
                          capture_output=True, text=True, check=False)
    return made.stderr if made.returncode else None


REASON = why_not()
if REASON:
    print("tls_commands_test is skipped:", REASON)


@unittest.skipIf(REASON, REASON)
class TlsCommandsTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="agg_tls_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "deploy").symlink_to(ROOT / "deploy")
        (self.folder / "bazel-bin").symlink_to(ROOT)

    def run_all(self, *more):
        """The commands and then others, in a shell that stops at the first
        that fails: (exit code, output). All that it has started ends with it."""
        # The server has the pipe, too: it ends with the shell.
        script = "\n".join(["set -e", "trap 'kill $(jobs -p)' EXIT",
                            "ip link set lo up", *commands(), *more])
        process = subprocess.Popen(
            [*UNSHARE, "bash", "-c", script], cwd=self.folder, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True)
        try:
            output, _ = process.communicate(timeout=WAIT)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        return process.returncode, output

    def test_there_are_three(self):
        self.assertEqual(len(commands()), 3)

    def test_a_worker_trains(self):
        code, output = self.run_all("kill %1", "wait %1", "trap - EXIT")
        self.assertEqual(code, 0, output)
        self.assertIn("OK, x[0] = ", output)
        self.assertIn("TLS with ", output)

    def test_who_has_no_certificate_does_not_get_in(self):
        aggctl = "bazel-bin/worker_client/tools/aggctl"

        def refused(command):
            return f"if {command}; then echo got in; exit 9; fi"

        code, output = self.run_all(
            f"env $(cat tls/admin.env) {aggctl} status",
            refused(f"{aggctl} status"),
            refused(f"env AGG_TLS_CA=tls/ca.pem {aggctl} status"),
            refused(f"{aggctl} --tls-ca=tls/worker.pem status"),
            # Another CA, of the same host.
            "deploy/test_ca.sh other",
            refused(f"env $(cat other/admin.env) {aggctl} status"),
            refused(f"{aggctl} --tls-ca=tls/ca.pem --tls-key=other/admin.key"
                    " --tls-certificate=other/admin.pem status"),
            # A worker is in, and may not do what an operator may.
            refused(f"env $(cat tls/worker.env) {aggctl} drain"),
            f"env $(cat tls/admin.env) {aggctl} status",
            "echo to the end", "kill %1", "wait %1", "trap - EXIT")
        self.assertEqual(code, 0, output)
        for text in ("127.0.0.1:50051 speaks TLS, and this end does not",
                     "127.0.0.1:50051 asks for a client certificate",
                     "the certificate of 127.0.0.1:50051 is not signed by a CA",
                     "127.0.0.1:50051 refuses the certificate other/admin.pem",
                     "needs the role admin",
                     "to the end"):
            self.assertIn(text, output)


if __name__ == "__main__":
    unittest.main()
