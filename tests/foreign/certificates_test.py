"""Who may do what (P45), where callers are known by their certificates, or by
tokens that cross TLS."""

import pathlib
import subprocess
import tempfile

from access_case import Bearer
from client import Worker, failure, round_of
from foreign_test_case import REDUCE, TENSORS, Code, ForeignTestCase, values
from server_process import WAIT, wait_until
from stubs import admin, agg, control
from tls_test import credentials, make_ca

import grpc

IDENTITIES = {"alice": ("spiffe://agg/worker/worker", "worker"),
              "bob": ("spiffe://agg/worker/bob", "worker"),
              "root": ("spiffe://agg/admin/*", "admin"),
              "shards": ("spiffe://agg/shard/*", "shard")}


def issue(ca, name, san):
    """A certificate of the CA in that folder, for a client of that name."""
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=ca, check=True,
                       capture_output=True)
    extensions = ca / f"{name}.ext"
    extensions.write_text("basicConstraints=critical,CA:FALSE\n"
                          "extendedKeyUsage=clientAuth\n"
                          f"subjectAltName=URI:{san}\n")
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt",
            "ec_paramgen_curve:P-256", "-out", f"{name}.key")
    openssl("req", "-new", "-key", f"{name}.key", "-subj", f"/CN={name}",
            "-out", f"{name}.csr")
    openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey",
            "ca.key", "-set_serial", "7", "-days", "1", "-extfile",
            str(extensions), "-out", f"{name}.pem")


class As:
    """A job as one with these channel credentials, and a token, sees it."""

    def __init__(self, job, channel_credentials, token=None):
        self.job = job
        self.credentials = channel_credentials
        self.token = token

    @property
    def addresses(self):
        return self.job.addresses

    def connect(self, address, options=()):
        peer = self.job.connect(address, options, self.credentials)
        if self.token is not None:
            peer.use(grpc.intercept_channel(peer.channel, Bearer(self.token)))
        return peer

    def peer(self, ordinal=0, options=()):
        return self.connect(self.addresses[ordinal], options)


class CertificatesTest(ForeignTestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.ca = make_ca(pathlib.Path(folder.name) / "ca")
        identities = "".join(
            f'  identities {{ name: "{name}" san: "{san}" roles: "{role}" }}\n'
            for name, (san, role) in IDENTITIES.items())
        self.job = self.start(
            f'workers: 1\n{REDUCE}security {{\n{identities}'
            f'  tls {{ certificate: "{self.ca}/server.pem"'
            f' key: "{self.ca}/server.key" client_ca: "{self.ca}/ca.pem" }}\n'
            '}\n', 2, credentials=credentials(self.ca, self.ca, "admin"))
        self.alice = self.as_("worker")

    def as_(self, name, san=None):
        if san is not None:
            issue(self.ca, name, san)
        return As(self.job, credentials(self.ca, self.ca, name))

    def test_each_certificate_may_do_its_own(self):
        worker = Worker(self.alice, 0, TENSORS)
        worker.seed(values(0))
        round_of([worker], [values(1, 2)])
        self.assert_tensors(worker.pull(1), values(1, 2))
        reply = self.job.peer().admin.SetRule(
            admin.SetRuleRequest(rule="mean"), timeout=WAIT)
        self.assertEqual(reply.after.rule, "mean")

    def test_each_certificate_is_refused_what_it_lacks(self):
        for ordinal in range(2):
            peer = self.alice.peer(ordinal)
            for call, request in (
                    (peer.admin.Drain, admin.DrainRequest()),
                    (peer.admin.ListAudit, admin.ListAuditRequest()),
                    (peer.control.Probe, control.ProbeRequest())):
                self.assert_fails(Code.PERMISSION_DENIED, "needs the role",
                                  call, request, timeout=WAIT)
        self.assert_fails(Code.PERMISSION_DENIED, "role worker", Worker,
                          self.job, 0, TENSORS)
        self.assert_fails(Code.PERMISSION_DENIED, "role worker", Worker,
                          self.as_("server"), 0, TENSORS)

    def test_a_certificate_of_no_identity_is_nobodys(self):
        for name, san in (("nobody", "spiffe://agg/guest/1"),
                          ("nearly", "spiffe://agg/worker/worker2")):
            stranger = self.as_(name, san)
            for ordinal in range(2):
                peer = stranger.peer(ordinal)
                for call, request in (
                        (peer.coordinator.GetStatus, agg.StatusRequest()),
                        (peer.coordinator.Join, agg.JoinRequest()),
                        (peer.admin.Drain, admin.DrainRequest()),
                        (peer.control.Probe, control.ProbeRequest())):
                    self.assert_fails(Code.UNAUTHENTICATED, "certificate's "
                                      "names are those of no identity", call,
                                      request, timeout=WAIT)
        records = self.job.peer().admin.ListAudit(admin.ListAuditRequest(),
                                                  timeout=WAIT).records
        denials = [r for r in records if "no identity" in r.outcome]
        self.assertTrue(denials)
        self.assertEqual({(r.action, r.who) for r in denials},
                         {("denial", "")})

    def test_a_bad_token_is_not_made_good_by_a_certificate(self):
        """A token counts before a certificate (P45)."""
        self.alice.peer().coordinator.GetStatus(agg.StatusRequest(),
                                                timeout=WAIT)
        peers = [holder.peer(ordinal) for ordinal in range(2)
                 for holder in (self.alice, self.job)]
        for texts in (["Bearer wrong-token-0123456789"], ["Bearer "], [""],
                      ["Basic YWxpY2U6eA=="], ["Bearer a", "Bearer b"]):
            headers = [("authorization", text) for text in texts]
            for peer in peers:
                for call, request in (
                        (peer.coordinator.GetStatus, agg.StatusRequest()),
                        (peer.shard.Pull, agg.PullRequest()),
                        (peer.admin.Drain, admin.DrainRequest())):
                    self.assert_fails(
                        Code.UNAUTHENTICATED, "the token is not valid here",
                        call, request, timeout=WAIT, metadata=headers)
        records = self.job.peer().admin.ListAudit(admin.ListAuditRequest(),
                                                  timeout=WAIT).records
        self.assertEqual({(r.action, r.who) for r in records
                          if "token is not valid" in r.outcome},
                         {("denial", "")})
        self.assertNotIn("wrong-token", self.job.shards[0].log())

    def test_a_session_is_its_owners_over_tcp_and_over_the_unix_socket(self):
        worker = Worker(self.alice, 0, TENSORS)
        worker.seed(values(0))
        bob = self.as_("bob", "spiffe://agg/worker/bob")
        sockets = worker.reply.local_sockets
        self.assertEqual(len(sockets), 2)
        # A socket has no name that a certificate could have.
        named = {"grpc.ssl_target_name_override": "localhost"}
        over_unix = [bob.connect(f"unix-abstract:{name}", named)
                     for name in sockets]
        leave = agg.LeaveRequest(epoch=worker.epoch, session=worker.session)
        frame = worker.frame_of(worker.indices(0), values(7), 0)
        for first, second in ((bob.peer(0), bob.peer(1)), over_unix):
            for call, request in (
                    (first.coordinator.Commit, worker.commit_request(0)),
                    (first.coordinator.Leave, leave),
                    (first.shard.Push, iter([frame])),
                    (second.shard.Push, iter([frame]))):
                self.assert_fails(Code.PERMISSION_DENIED, "another identity",
                                  call, request, timeout=WAIT)
        # Over that socket, too, it is not known without a certificate.
        stranger = As(self.job, credentials(self.ca))
        code, _ = failure(
            stranger.connect(f"unix-abstract:{sockets[0]}",
                             named).coordinator.GetStatus,
            agg.StatusRequest(), timeout=WAIT)
        self.assertEqual(code, Code.UNAVAILABLE)
        round_of([worker], [values(2)])
        self.assert_tensors(worker.pull(1), values(2))

    def test_a_shard_that_comes_back_is_known_by_its_certificate(self):
        worker = Worker(self.alice, 0, TENSORS)
        worker.seed(values(0))
        round_of([worker], [values(2)])
        self.job.shards[0].kill()
        self.job.start(0)

        def resumed():
            try:
                return Worker(self.alice, 0, TENSORS,
                              resume_session=worker.session, resume_version=1)
            except grpc.RpcError as error:
                self.assertEqual(error.code(), Code.UNAVAILABLE,
                                 error.details())
                return None
        back = wait_until(resumed, "the worker is back")
        self.assertEqual(round_of([back], [values(3)], 1)[0].version, 2)


class TokensOverTlsTest(ForeignTestCase):
    """Nobody is asked for a certificate: the shards have tokens, too."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.ca = make_ca(pathlib.Path(folder.name) / "ca")
        tokens = {name: f"{name}-token-0123456789" for name in
                  ("alice", "root", "shard")}
        for name, token in tokens.items():
            (self.ca / name).write_text(token + "\n")
        self.tokens = tokens
        self.job = self.start(
            f'workers: 1\n{REDUCE}security {{\n'
            f'  identities {{ name: "alice" token_file: "{self.ca}/alice"'
            ' roles: "worker" }\n'
            f'  identities {{ name: "root" token_file: "{self.ca}/root"'
            ' roles: "admin" }\n'
            f'  shard_token_file: "{self.ca}/shard"\n'
            f'  tls {{ certificate: "{self.ca}/server.pem"'
            f' key: "{self.ca}/server.key" ca: "{self.ca}/ca.pem" }}\n}}\n',
            2, first_shard=1)
        self.job.start(0)
        root = self.as_("root").peer().coordinator
        wait_until(lambda: root.GetStatus(
            agg.StatusRequest(), timeout=WAIT).phase != "waiting_for_shards",
            "all shards are attached")

    def as_(self, name):
        return As(self.job, credentials(self.ca), self.tokens.get(name))

    def test_a_worker_trains(self):
        worker = Worker(self.as_("alice"), 0, TENSORS)
        worker.seed(values(0))
        round_of([worker], [values(1, 2)])
        self.assert_tensors(worker.pull(1), values(1, 2))

    def test_who_has_no_token_is_nobody_on_both_shards(self):
        for ordinal in range(2):
            peer = self.as_("nobody").peer(ordinal)
            for call, request in (
                    (peer.coordinator.GetStatus, agg.StatusRequest()),
                    (peer.shard.Pull, agg.PullRequest()),
                    (peer.control.Probe, control.ProbeRequest())):
                self.assert_fails(Code.UNAUTHENTICATED, "token", call, request,
                                  timeout=WAIT)
