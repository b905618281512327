"""deploy/prometheus/prometheus.yml in a real Prometheus: a process says which
job it is of, and nothing that only its target's owner can know."""

import http.server
import json
import threading
import time
import unittest
import urllib.parse
import urllib.request

from deploy import quickstart_monitoring as monitoring

# What is on this host needs no proxy of the environment.
_LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))
SECONDS = 60  # for anything to happen
# Of namespace b, which would be taken for a job of namespace a that has failed.
FOREIGN = """\
aggserver_job_failed{namespace="a",pod="agg-0",instance="x",job="j",shard="0"} 1
aggserver_round{job="j",shard="0",exported_namespace="a"} 7
ALERTS{alertname="AggJobFailed",namespace="a",alertstate="firing"} 1
aggserver:shard_seen{namespace="a",job="j",shard="9"} 1
up{namespace="a",job="j"} 0
"""


class Foreign(http.server.BaseHTTPRequestHandler):

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(FOREIGN.encode())

    def log_message(self, *_):
        pass


@unittest.skipIf(monitoring.missing(), monitoring.missing())
class ForeignTargetTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign)
        cls.addClassCleanup(server.server_close)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        cls.addClassCleanup(thread.join)
        cls.addClassCleanup(server.shutdown)
        cls.address = f"127.0.0.1:{server.server_port}"
        cls.prometheus = monitoring.Monitoring(port=0)
        cls.prometheus.__enter__()
        cls.addClassCleanup(cls.prometheus.__exit__)
        (cls.prometheus.folder / "targets_b.json").write_text(json.dumps([{
            "targets": [cls.address],
            "labels": {"namespace": "b", "pod": "evil-0"}}]))

    def series(self, expr):
        url = f"{self.prometheus.url}/api/v1/query?" + urllib.parse.urlencode(
            {"query": expr})
        with _LOCAL.open(url, timeout=30) as reply:
            result = json.load(reply)["data"]["result"]
        return [one["metric"] for one in result]

    def test_nobody_speaks_for_another_namespace(self):
        deadline = time.monotonic() + SECONDS
        while not (found := self.series("aggserver_job_failed")):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)
        target = {"job": "j", "shard": "0", "namespace": "b", "pod": "evil-0",
                  "instance": self.address}
        self.assertEqual(
            found, [{"__name__": "aggserver_job_failed", **target}])
        self.assertEqual(self.series("aggserver_round"),
                         [{"__name__": "aggserver_round", **target}])
        self.assertEqual(self.series('{namespace="a"}'), [])
        self.assertEqual(self.series('{__name__=~"ALERTS|aggserver:.*",'
                                     'shard="9"}'), [])


if __name__ == "__main__":
    unittest.main()
