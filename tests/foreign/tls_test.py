"""Mutual TLS with a client that is not ours: who shows a certificate of the
job's CA gets in, nobody else does, whatever is called."""

import pathlib
import subprocess
import tempfile
import unittest

import grpc

from client import Worker, round_of
from foreign_test_case import REDUCE, TENSORS, ForeignTestCase, values
from server_process import WAIT
from stubs import ROOT, Peer, agg, admin, control


def make_ca(folder):
    subprocess.run([ROOT / "deploy/test_ca.sh", folder], check=True,
                   stdout=subprocess.DEVNULL)
    return pathlib.Path(folder)


def credentials(ca, own=None, name="worker"):
    """Trusts the CA of `ca`; shows the certificate of `own`, or none."""
    return grpc.ssl_channel_credentials(
        (ca / "ca.pem").read_bytes(),
        (own / f"{name}.key").read_bytes() if own else None,
        (own / f"{name}.pem").read_bytes() if own else None)


class TlsTest(ForeignTestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.ca = make_ca(pathlib.Path(folder.name) / "ca")
        self.other = make_ca(pathlib.Path(folder.name) / "other")
        config = (f'workers: 1\n{REDUCE}security {{ tls {{'
                  f' certificate: "{self.ca}/server.pem"'
                  f' key: "{self.ca}/server.key"'
                  f' client_ca: "{self.ca}/ca.pem" }} }}\n')
        self.job = self.start(config, 2,
                              credentials=credentials(self.ca, self.ca))

    def assert_out(self, channel_credentials):
        """No service of any shard answers."""
        for ordinal in range(2):
            peer = Peer(self.job.addresses[ordinal],
                        credentials=channel_credentials)
            self.addCleanup(peer.close)
            calls = [
                (peer.coordinator.GetStatus, agg.StatusRequest()),
                (peer.coordinator.Observe, agg.ObserveRequest()),
                (peer.coordinator.Join, agg.JoinRequest()),
                (peer.admin.GetVersion, admin.GetVersionRequest()),
                (peer.admin.Drain, admin.DrainRequest()),
                (peer.control.Probe, control.ProbeRequest()),
            ]
            for call, request in calls:
                with self.assertRaises(grpc.RpcError) as raised:
                    call(request, timeout=WAIT)
                self.assertEqual(raised.exception.code(),
                                 grpc.StatusCode.UNAVAILABLE)

    def test_a_worker_with_a_certificate_trains(self):
        worker = Worker(self.job, 0, TENSORS)
        worker.seed(values(0))
        round_of([worker], [values(1, 2)])
        self.assert_tensors(worker.pull(1), values(1, 2))

    def test_without_tls(self):
        self.assert_out(None)

    def test_without_a_certificate(self):
        self.assert_out(credentials(self.ca))

    def test_a_certificate_of_another_ca(self):
        self.assert_out(credentials(self.ca, self.other))

    def test_a_server_of_another_ca(self):
        self.assert_out(credentials(self.other, self.ca))

    def test_the_job_goes_on_beside_those_who_are_refused(self):
        worker = Worker(self.job, 0, TENSORS)
        worker.seed(values(0))
        self.assert_out(credentials(self.ca, self.other))
        round_of([worker], [values(1, 2)])
        self.assert_tensors(worker.pull(1), values(1, 2))


if __name__ == "__main__":
    unittest.main()
