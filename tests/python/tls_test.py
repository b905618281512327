"""Mutual TLS with the package's workers."""

import os
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

import numpy as np

from tests.python.job_case import ROOT, JobCase, agg


def make_ca(folder):
    subprocess.run([ROOT / "deploy/test_ca.sh", folder], check=True,
                   stdout=subprocess.DEVNULL)
    return pathlib.Path(folder)


def of_worker(ca, own=None):
    own = own or ca
    return agg.Tls(ca / "ca.pem", own / "worker.pem", str(own / "worker.key"))


class TlsTest(JobCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.ca = make_ca(pathlib.Path(folder.name) / "ca")
        cls.other = make_ca(pathlib.Path(folder.name) / "other")

    def setUp(self):
        tls = {"certificate": str(self.ca / "server.pem"),
               "key": str(self.ca / "server.key"),
               "client_ca": str(self.ca / "ca.pem")}
        self.server = self.serve(lr=0.5, config={"security": {"tls": tls}})

    def train(self, **options):
        self.train_once(self.server, **options)

    def test_a_worker_and_an_observer(self):
        x = {"w": np.zeros(3, np.float32)}
        tls = of_worker(self.ca)
        with agg.Client(x, self.server.address, 0, tls=tls) as client:
            client.step({"w": np.ones(3, np.float32)})
            with agg.Observer(self.server.address, tls=tls) as observer:
                self.assertEqual(observer.latest_version(), 1)

    def test_from_the_environment(self):
        tls = of_worker(self.ca)
        with mock.patch.dict(os.environ, AGG_TLS_CA=str(tls.ca),
                             AGG_TLS_CERTIFICATE=str(tls.certificate),
                             AGG_TLS_KEY=str(tls.key)):
            self.train()

    def test_who_does_not_get_in(self):
        for tls, text in ((None, "speaks TLS"),
                          (agg.Tls(self.ca / "ca.pem"), "asks for a client"),
                          (of_worker(self.other), "is not signed by a CA of"),
                          (of_worker(self.ca, self.other),
                           "refuses the certificate")):
            with self.assertRaisesRegex(agg.ShardLost, text):
                self.train(tls=tls, connect_timeout=2.0)

    def test_bad_options(self):
        with self.assertRaisesRegex(TypeError, "tls is 'ca.pem'; allowed: "):
            self.train(tls="ca.pem")
        with self.assertRaisesRegex(agg.ManifestError, "tls.ca is "):
            self.train(tls=agg.Tls("none.pem"))


if __name__ == "__main__":
    unittest.main()
