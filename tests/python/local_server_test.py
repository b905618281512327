"""LocalServer: what the environment and one configuration mean for its shards."""

import os
import re
import socket
import unittest
import urllib.request
from unittest import mock

import numpy as np

from tests.python.job_case import JobCase, agg

# Nobody listens there. With and without the exceptions that people write.
PROXY = "http://127.0.0.1:9"
PROXIES = {name: PROXY for name in (
    "grpc_proxy", "http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY",
    "HTTPS_PROXY", "ALL_PROXY")}
LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def two_free_ports():
    """The first of two neighbours that are free."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def read(port, path):
    with LOCAL.open(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
        return reply.read().decode()


class LocalServerTest(JobCase):

    def test_a_proxy_of_the_environment_is_not_used(self):
        for more in ({}, {"NO_PROXY": "127.0.0.0/8"}, {"no_proxy": "other"}):
            with self.subTest(more), \
                    mock.patch.dict(os.environ, {**PROXIES, **more}):
                self.train_once(self.serve(shards=2, lr=0.5))

    def test_who_cannot_connect_is_told_so(self):
        with mock.patch.dict(os.environ, {"http_proxy": "http://u:secret@p:9"}):
            with self.assertRaises(agg.Error) as caught:
                agg.Client({"w": np.zeros(3, np.float32)}, "127.0.0.1:9", 0,
                           connect_timeout=0.5)
        self.assertIn("http_proxy of the environment is not used",
                      str(caught.exception))
        self.assertNotIn("secret", str(caught.exception))

    def test_shards_with_one_configuration_have_a_port_of_metrics_each(self):
        port = two_free_ports()
        server = self.serve(shards=2, lr=0.5, config={"metrics": {"port": port}})
        self.train_once(server)
        for ordinal in range(2):
            self.assertIn("aggserver_", read(port + ordinal, "/metrics"))
            self.assertRegex(server.log(ordinal),
                             f"status page on port {port + ordinal}")

    def test_a_port_that_is_taken_is_named(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with self.assertRaises(agg.Error) as caught:
                self.serve(lr=0.5, config={"metrics": {"port": port}})
        self.assertTrue(re.search(
            f"127.0.0.1:{port}: Address already in use; metrics.port or "
            "--metrics_port names another one", str(caught.exception)),
            caught.exception)


if __name__ == "__main__":
    unittest.main()
