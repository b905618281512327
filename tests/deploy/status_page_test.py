"""The status page and agg_report's report in a real browser, of a real run.

Skipped, and said so, where Chromium is not installed. With the environment's
STATUS_PAGE_SCREENSHOT=FILE.png the page is also painted into that file.
"""

import html.parser
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

CHROMIUM = shutil.which("chromium")
SERVER = os.path.abspath("server/agg_server")
WORKER = os.path.abspath("worker_client/examples/digits_worker")
REPORT = os.path.abspath("server/tools/agg_report")
DATA = os.path.abspath("deploy/data/digits.csv.gz")
WORKERS = 4
PATIENCE = 120  # seconds
CONFIG = """
job: "digits"
shards: "127.0.0.1:%d"
shards: "127.0.0.1:%d"
workers: 4
combination { rule: "adasum" }
step_scale { kind: "adascale" force: true }
learning_rate { rate: 0.05 }
round_log { path: "%s" }
"""


def eventually(what, look):
    """The first true value of look(), which is asked again and again."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = look()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError("waited in vain for " + what)


def free_ports(count):
    import socket
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Elements(html.parser.HTMLParser):
    """Texts by id, and the attributes of elements with one."""

    def __init__(self, text):
        super().__init__()
        self.texts = {}
        self.attributes = {}
        self.body = {}
        self._open = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag == "body":
            self.body = attributes
        if tag not in ("meta", "link", "br", "img"):
            self._open.append((tag, attributes.get("id")))
        if "id" in attributes:
            self.attributes[attributes["id"]] = attributes
            self.texts.setdefault(attributes["id"], "")

    def handle_endtag(self, tag):
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        for _, name in self._open:
            if name:
                self.texts[name] += data + " "


class Job:
    """Two shards and their workers, in a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.log = os.path.join(folder, "rounds.binlog")
        self.processes = []
        self.address = None
        config = os.path.join(folder, "job.textproto")
        ports = free_ports(2)
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG % (*ports, self.log))
        self.address = "127.0.0.1:%d" % ports[0]
        self.servers = []
        for shard in range(2):
            port_file = os.path.join(folder, "metrics%d" % shard)
            self.servers.append(self.start(
                [SERVER, "--config=" + config, "--shard=%d" % shard,
                 "--metrics_port=0", "--metrics_port_file=" + port_file]))
        self.pages = [
            "http://127.0.0.1:" + eventually(
                "the metrics port", lambda s=shard: self.read("metrics%d" % s))
            for shard in range(2)]

    def read(self, name):
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8") as file:
            return file.read().strip()

    def start(self, command):
        log = open(os.path.join(self.folder,
                                "%d.log" % len(self.processes)), "wb")
        process = subprocess.Popen(command, stdout=log, stderr=log)
        log.close()
        self.processes.append(process)
        return process

    def start_worker(self, rank, epochs):
        return self.start([
            WORKER, "--coordinator=" + self.address, "--rank=%d" % rank,
            "--workers=%d" % WORKERS, "--batch=8", "--epochs=%d" % epochs,
            "--data=" + DATA])

    def get(self, path, shard=0):
        try:
            with urllib.request.urlopen(self.pages[shard] + path,
                                        timeout=30) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def status(self, shard=0):
        return json.loads(self.get("/status.json", shard)[1])

    def stop(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def browse(url, *flags):
    """What Chromium makes of a page: its DOM, and what its console said."""
    with tempfile.TemporaryDirectory() as profile:
        result = subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu",
             "--hide-scrollbars", "--user-data-dir=" + profile,
             "--enable-logging=stderr", "--v=0", "--window-size=1280,1900",
             "--virtual-time-budget=4000", *flags, url],
            capture_output=True, text=True, timeout=PATIENCE, check=True)
    console = [line for line in result.stderr.splitlines()
               if "CONSOLE" in line]
    return result.stdout, console


@unittest.skipIf(CHROMIUM is None, "chromium is not installed")
class StatusPageTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.job = Job(folder.name)
        self.addCleanup(self.job.stop)

    def look(self, url):
        dom, console = browse(url, "--dump-dom")
        self.assertEqual(console, [], "the page's console is not empty")
        return Elements(dom)

    def check_pictures(self, page):
        for name in ("orthogonality", "gain", "loss", "rate", "cosine",
                     "seconds"):
            chart = page.attributes["chart-" + name]
            self.assertGreaterEqual(int(chart["data-points"]), 20, name)
            self.assertNotIn("no values", chart["aria-label"])
        self.assertEqual(page.attributes["matrix"]["data-cells"],
                         str(WORKERS * WORKERS))
        self.assertGreaterEqual(
            int(page.attributes["layers"]["data-cells"]), 4 * 20)

    def test_a_training(self):
        job = self.job
        self.assertEqual(job.get("/healthz")[0], 200)
        eventually("readiness", lambda: job.get("/readyz")[0] == 200)
        workers = [job.start_worker(rank, 400) for rank in range(WORKERS)]
        eventually("rounds",
                   lambda: job.status()["outcomes"]["applied"] >= 600)
        # Somebody falls behind: the page says who.
        os.kill(workers[2].pid, signal.SIGSTOP)

        def waited():
            return [w for w in job.status()["job"]["workers"]
                    if w["rank"] == 2 and w["waited"] > 2]
        eventually("the stall", waited)
        page = self.look(job.pages[0] + "/")
        self.assertEqual(page.texts["phase"].strip(), "open")
        self.assertRegex(page.texts["waiting"], "has waited .+ for rank 2")
        self.assertNotIn("rank 1", page.texts["waiting"])
        for rank in range(WORKERS):
            self.assertRegex(page.texts["workers"], r"(^| )%d " % rank)
        # The word of aggctl.
        self.assertIn("waited for", page.texts["workers"].split("state")[1])
        self.assertEqual(page.texts["shards"].count(" yes "), 2)
        for address in job.status()["server"]["shards"]:
            self.assertIn(address, page.texts["shards"])
        # Of this model, without what slices are padded by.
        self.assertEqual(sum(job.status(shard)["shard"]["elements"]
                             for shard in range(2)), 4810)
        self.assertIn("adasum, per_tensor", page.texts["subtitle"])
        self.assertGreater(int(page.body["data-polls"]), 1)
        self.check_pictures(page)
        self.check_shard_page()
        self.paint()
        self.check_trace()
        for worker in workers:
            worker.kill()
        started = time.monotonic()
        for server in job.servers:
            server.send_signal(signal.SIGTERM)
        for server in job.servers:
            self.assertEqual(server.wait(PATIENCE), 0)
        self.assertLess(time.monotonic() - started, PATIENCE)
        self.check_report()

    def check_shard_page(self):
        page = self.look(self.job.pages[1] + "/")
        self.assertIn("shard 1", page.texts["title"])
        self.assertEqual(page.texts["phase"].strip(), "attached")
        self.assertIn("1 of 2", page.texts["shard"])
        self.assertIn("shard 0", page.texts["links"])
        self.assertEqual(self.job.get("/trace.json", 1)[0], 404)

    def check_trace(self):
        events = json.loads(self.job.get("/trace.json")[1])["traceEvents"]
        rounds = [e for e in events if e["name"].startswith("round ")]
        self.assertEqual(len(rounds), 512)
        for before, after in zip(rounds, rounds[1:]):
            self.assertEqual(after["args"]["round"],
                             before["args"]["round"] + 1)
        self.assertTrue(any(e["name"] == "gram" and e["tid"] == 2
                            for e in events))

    def check_report(self):
        report = os.path.join(self.job.folder, "report.html")
        subprocess.run([REPORT, "--log=" + self.job.log,
                        "--output=" + report], check=True)
        page = self.look("file://" + report)
        self.check_pictures(page)
        self.assertIn("Run of digits", page.texts["title"])
        self.assertIn("final loss", page.texts["run"])
        self.assertIn('rule: "adasum"', page.texts["config"])
        rounds = int(re.search(r"(?<!last )rounds\s+(\d+)",
                               page.texts["run"]).group(1))
        self.assertGreaterEqual(rounds, 600)
        self.assertIn("adasum, per_tensor", page.texts["subtitle"])
        self.check_cut_report(report)

    def check_cut_report(self, report):
        cut = os.path.join(self.job.folder, "cut.binlog")
        with open(self.job.log, "rb") as whole, open(cut, "wb") as file:
            file.write(whole.read()[:-7])
        result = subprocess.run([REPORT, "--log=" + cut, "--output=" + report],
                                capture_output=True, text=True, check=True)
        said = re.search(r"cut.binlog: the last (\d+) bytes", result.stderr)
        self.assertGreater(int(said.group(1)), 100)
        self.assertIn("left out", self.look("file://" + report).texts["run"])

    def paint(self):
        path = os.environ.get("STATUS_PAGE_SCREENSHOT")
        if path:
            browse(self.job.pages[0] + "/", "--screenshot=" + path)


def varint(value):
    encoded = b""
    while value > 127:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


def field(number, value):
    """A protobuf field: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


@unittest.skipIf(CHROMIUM is None, "chromium is not installed")
class HostileNamesTest(unittest.TestCase):

    def test_names_stay_text(self):
        evil = b"</script><script>document.title='taken'</script><img src=x>"
        row = field(1, 0) + field(2, 8)  # proto/round_log.proto
        run = (field(1, evil) + field(4, evil) + field(6, 1) +
               field(7, field(1, evil) + field(2, 5)))
        record = (field(1, run) + field(2, 1) + field(6, 1) + field(7, evil) +
                  field(8, evil) + field(11, row) +
                  field(14, b"\0\0\0\x3f"))
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "rounds.binlog")
            report = os.path.join(folder, "report.html")
            with open(log, "wb") as file:
                file.write(varint(len(record)) + record)
            subprocess.run([REPORT, "--log=" + log, "--output=" + report],
                           check=True)
            dom, console = browse("file://" + report, "--dump-dom")
        self.assertEqual(console, [])
        self.assertNotIn("<img", dom)
        self.assertNotIn("<script>document", dom)
        page = Elements(dom)
        self.assertIn("<img src=x>", page.texts["title"])
        self.assertIn("<img src=x>", page.texts["config"])
        self.assertEqual(page.attributes["layers"]["data-cells"], "1")


class ReportErrorsTest(unittest.TestCase):

    def test_one_line_and_exit_codes(self):
        with tempfile.TemporaryDirectory() as folder:
            output = os.path.join(folder, "report.html")
            text = os.path.join(folder, "text")
            with open(text, "w", encoding="utf-8") as file:
                file.write("this is no round log\n")
            empty = os.path.join(folder, "empty")
            with open(empty, "wb"):
                pass
            for flags, message in (
                    (["--log=" + text, "--output=" + output], "no round log"),
                    (["--log=" + empty, "--output=" + output], "no round"),
                    (["--log=/no/such", "--output=" + output], "/no/such"),
                    (["--log=" + text], "--output is missing"),
                    (["--output=" + output], "--log is missing"),
                    (["--what"], "--what")):
                result = subprocess.run([REPORT] + flags, text=True,
                                        capture_output=True, check=False)
                self.assertEqual(result.returncode, 2, flags)
                self.assertIn(message, result.stderr)
                self.assertEqual(len(result.stderr.splitlines()), 1)
            self.assertFalse(os.path.exists(output))


if __name__ == "__main__":
    unittest.main()
