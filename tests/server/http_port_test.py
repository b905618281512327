"""The HTTP port of a live server with TLS and identities, asked by Python's
own client, which shares no code with the project."""

import base64
import json
import os
import pathlib
import re
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

ROOT = pathlib.Path.cwd()
SERVER = ROOT / "server/agg_server"
AGGCTL = ROOT / "worker_client/tools/aggctl"
WORKER = ROOT / "worker_client/examples/minimal_worker"
LONGEST = 60.0
TOKENS = {"watcher": "watcher-token-0123456789", "trainer":
          "trainer-token-0123456789", "operator": "operator-token-012345678",
          "shard": "shard-token-0123456789ab"}

JOB = """
workers: 1
learning_rate {{ rate: 0.1 }}
metrics {{ max_tensors: 4 }}
security {{
  tls {{
    certificate: "{0}/tls/server.pem"
    key: "{0}/tls/server.key"
    client_ca: "{0}/tls/ca.pem"
    reload_seconds: 0.01
  }}
  shard_token_file: "{0}/shard"
  identities {{ name: "watcher" token_file: "{0}/watcher" roles: "observer" }}
  identities {{ name: "trainer" token_file: "{0}/trainer" roles: "worker" }}
  identities {{ name: "operator" token_file: "{0}/operator" roles: "admin" }}
  {1}
}}
"""


class HttpPortTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="agg_http_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.make_certificates()
        for name, token in TOKENS.items():
            path = self.folder / name
            path.write_text(token + "\n")
            path.chmod(0o600)

    def make_certificates(self, folder="tls"):
        subprocess.run([ROOT / "deploy/test_ca.sh", self.folder / folder],
                       check=True, capture_output=True)

    def start(self, security=""):
        """A server, ended with the test; its ports are chosen."""
        config = self.folder / "job.textproto"
        config.write_text(JOB.format(self.folder, security))
        self.log = self.folder / "log"
        with open(self.log, "w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [SERVER, f"--config={config}", "--port=0", "--metrics_port=0",
                 f"--port_file={self.folder}/port", "--drain_seconds=1",
                 f"--metrics_port_file={self.folder}/metrics_port"],
                stdin=subprocess.DEVNULL, stderr=log)
        self.addCleanup(self.end, process)
        self.await_(lambda: (self.folder / "metrics_port").exists()
                    or process.poll() is not None)
        self.assertIsNone(process.poll(), self.log.read_text())
        port = (self.folder / "metrics_port").read_text().strip()
        self.url = f"https://localhost:{port}"
        port = (self.folder / "port").read_text().strip()
        self.address = f"127.0.0.1:{port}"

    def end(self, process):
        process.terminate()
        process.wait()

    def await_(self, condition):
        deadline = time.monotonic() + LONGEST
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def ask(self, path, authorization=None, ca="tls"):
        """(status, headers, text) of a page."""
        request = urllib.request.Request(self.url + path)
        if authorization:
            request.add_header("Authorization", authorization)
        context = ssl.create_default_context(
            cafile=self.folder / ca / "ca.pem")
        try:
            with urllib.request.urlopen(request, context=context,
                                        timeout=LONGEST) as reply:
                return reply.status, reply.headers, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read().decode()

    def page(self, path):
        status, _, text = self.ask(path, "Bearer " + TOKENS["watcher"])
        self.assertEqual(status, 200, text)
        return text

    def run_as(self, name, *command):
        tls = self.folder / "tls"
        return subprocess.run(
            command, text=True, capture_output=True, timeout=LONGEST,
            check=False,
            env={**os.environ, "AGG_TOKEN_FILE": str(self.folder / name),
                 "AGG_TLS_CA": f"{tls}/ca.pem",
                 "AGG_TLS_CERTIFICATE": f"{tls}/worker.pem",
                 "AGG_TLS_KEY": f"{tls}/worker.key"})

    def train(self):
        result = self.run_as("trainer", WORKER, self.address)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_token_of_an_observer_or_admin_reads(self):
        self.start()
        for name in ("watcher", "operator"):
            status, headers, text = self.ask("/metrics",
                                             "Bearer " + TOKENS[name])
            self.assertEqual(status, 200)
            self.assertIn("aggserver_identities", text)
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
        # As a browser asks with what it has been told.
        pair = base64.b64encode(("me:" + TOKENS["watcher"]).encode()).decode()
        self.assertIs(json.loads(self.ask("/status.json", "Basic " + pair)[2])
                      ["server"]["identities"], True)

    def test_others_do_not(self):
        self.start()
        for authorization, code in (
                (None, 401), ("Bearer wrong-token-0123456789", 401),
                ("Bearer " + TOKENS["watcher"][:-1], 401),
                ("Bearer " + TOKENS["trainer"], 403)):
            for path in ("/", "/metrics", "/status.json", "/trace.json"):
                status, headers, text = self.ask(path, authorization)
                self.assertEqual(status, code, path)
                self.assertNotIn("aggserver_", text)
                if code == 401:
                    self.assertEqual(
                        [scheme.split()[0] for scheme in
                         headers.get_all("WWW-Authenticate")],
                        ["Bearer", "Basic"])
        denied = self.page("/metrics")
        for reason, number in (("no_credential", 4), ("bad_token", 8),
                               ("role", 4)):
            self.assertRegex(denied, r'aggserver_denied_total\{[^}]*reason="'
                             rf'{reason}"[^}}]*\}} {number}\n')
        audit = self.run_as("operator", AGGCTL,
                            f"--coordinator={self.address}", "audit")
        self.assertEqual(audit.returncode, 0, audit.stderr)
        self.assertIn("http/pages", audit.stdout)
        # No token is in any log.
        text = self.log.read_text() + audit.stdout
        for token in [*TOKENS.values(), "wrong-token"]:
            self.assertNotIn(token, text)

    def test_health_is_for_probes(self):
        self.start()
        self.assertEqual(self.ask("/healthz")[::2], (200, "ok\n"))
        self.await_(lambda: self.ask("/readyz")[::2] == (200, "ok\n"))

    def test_health_can_be_switched_off(self):
        self.start('health: "off"')
        self.assertEqual(self.ask("/healthz")[0], 401)
        self.assertEqual(self.ask("/readyz")[0], 401)

    def test_tensors_have_names_or_numbers(self):
        self.start()
        self.train()
        self.assertIn('tensor="x"', self.page("/metrics"))
        self.assertIn('"x"', self.page("/status.json"))

    def test_names_of_tensors_can_be_hidden(self):
        self.start('http { tensors: "hidden" }')
        self.train()
        self.assertIn('tensor="#0"', self.page("/metrics"))
        for path in ("/metrics", "/status.json", "/trace.json"):
            self.assertNotIn('"x"', self.page(path))

    def test_pages_can_be_open(self):
        self.start('http { pages: "open" }')
        self.assertEqual(self.ask("/metrics")[0], 200)

    def test_a_new_certificate_and_its_end(self):
        self.start()

        def expiry(text):
            (value,) = re.findall(
                r"aggserver_certificate_expiry_timestamp_seconds\{[^}]*"
                r'file="certificate"[^}]*\} (\S+)\n', text)
            return float(value)

        def on_disk():
            out = subprocess.run(
                ["openssl", "x509", "-noout", "-enddate", "-in",
                 self.folder / "tls/server.pem"], check=True,
                capture_output=True, text=True).stdout
            return ssl.cert_time_to_seconds(out.strip().partition("=")[2])

        self.assertEqual(expiry(self.page("/metrics")), on_disk())
        # Another CA: who trusts that one gets in once it is there.
        self.make_certificates("other")
        for name in ("server.key", "server.pem"):
            os.replace(self.folder / "other" / name, self.folder / "tls" / name)

        def renewed():
            try:
                return self.ask("/healthz", ca="other")[0] == 200
            except urllib.error.URLError:
                return False

        self.await_(renewed)
        status, _, text = self.ask("/metrics", "Bearer " + TOKENS["watcher"],
                                   ca="other")
        self.assertEqual(status, 200)
        self.assertEqual(expiry(text), on_disk())

    def test_beyond_loopback_without_tls_it_does_not_start(self):
        config = self.folder / "plain"
        config.write_text('workers: 1 learning_rate { rate: 0.1 }\n'
                          'metrics { bind: "0.0.0.0" }\n')
        result = subprocess.run(
            [SERVER, f"--config={config}", "--port=0", "--metrics_port=0"],
            text=True, capture_output=True, timeout=LONGEST, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn('metrics.bind is "0.0.0.0"; allowed: loopback',
                      result.stderr)


if __name__ == "__main__":
    unittest.main()
