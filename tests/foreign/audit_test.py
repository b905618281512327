"""What is audited and counted: what operators do, and each refusal (P45, P46)."""

import re
import socket
import urllib.request

from access_case import TOKENS, AccessCase
from client import Worker, failure
from foreign_test_case import TENSORS, Code, values
from server_process import WAIT, wait_until
from stubs import admin, agg, reduction

# By method: its request, and the action, the detail, the rank (-1: of none) and
# the beginning of the outcome that are audited.
CHANGES = {
    "SetRule": (admin.SetRuleRequest(rule="mean"),
                ("set_rule", 'rule: "mean"', -1, "OK")),
    "SetLogLevel": (admin.SetLogLevelRequest(level="error"),
                    ("log_level", "error", -1, "OK")),
    "TakeCheckpoint": (admin.TakeCheckpointRequest(),
                       ("checkpoint", "", -1, "FAILED_PRECONDITION: ")),
    "Restore": (admin.RestoreRequest(checkpoint="3"),
                ("restore", "3", -1, "FAILED_PRECONDITION: ")),
    "Resume": (admin.ResumeRequest(),
               ("resume_job", "", -1, "FAILED_PRECONDITION: ")),
    "EvictWorker": (admin.EvictWorkerRequest(rank=0, reason="too hot"),
                    ("evict", "too hot", 0, "OK")),
    "Drain": (admin.DrainRequest(), ("drain", "", -1, "OK")),
}
QUESTIONS = {"ListTensors", "ListRounds", "GetVersion", "Describe",
             "ListAudit"}
WATCH = "/grpc.health.v1.Health/Watch"
CHECK = "/grpc.health.v1.Health/Check"


class AuditCase(AccessCase):

    def job(self, **kwargs):
        """One shard, with metrics."""
        self.port_file = self.folder / "metrics_port"
        flags = ["--metrics_port=0", f"--metrics_port_file={self.port_file}",
                 *kwargs.pop("flags", ())]
        # Nobody renews it here, however slow the machine is.
        more = "lease_seconds: 600\n" + kwargs.pop("more", "")
        job = super().job(flags=flags, more=more, **kwargs)
        wait_until(self.port_file.exists, "the metrics port is known")
        return job

    def denied(self):
        """aggserver_denied_total, by reason."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port_file.read_text().strip()}/metrics",
            headers={"Authorization": f"Bearer {TOKENS['root']}"})
        with urllib.request.urlopen(request, timeout=WAIT) as page:
            text = page.read().decode()
        return {reason: int(count) for reason, count in re.findall(
            r'^aggserver_denied_total{.*reason="(\w+)".*} (\d+)', text, re.M)}

    def denials(self, job, who, method):
        return [r for r in self.audit(job) if
                (r.action, r.who, r.detail) == ("denial", who, method)]

    def assert_denied_once(self, job, who, method, reason, text):
        """One refusal of that reason: it is counted, and its line says why."""
        self.assertEqual(self.denied()[reason], 1)
        denials = self.denials(job, who, method)
        self.assertEqual(len(denials), 1, self.audit(job))
        self.assertRegex(denials[0].outcome, text)
        self.assertIn("127.0.0.1", getattr(denials[0], "from"))
        return denials[0]


class ActionsTest(AuditCase):

    def test_each_change_by_an_operator_is_audited_and_no_question(self):
        job, _ = self.seeded_by_alice(flags=["--drain_seconds=0.5"])
        service = admin.DESCRIPTOR.services_by_name["Admin"]
        self.assertEqual({method.name for method in service.methods},
                         {*CHANGES, *QUESTIONS})
        operator = job.peer().admin
        before = len(self.audit(job))
        for name in QUESTIONS:
            getattr(operator, name)(getattr(admin, name + "Request")(),
                                    timeout=WAIT)
        self.assertEqual(len(self.audit(job)), before)
        for name, (request, expected) in CHANGES.items():
            if name == "Drain":
                continue
            call = getattr(operator, name)
            if expected[-1] == "OK":
                call(request, timeout=WAIT)
            else:
                failure(call, request, timeout=WAIT)
            before += 1
            records = self.audit(job)
            self.assertEqual(len(records), before, name)
            last = records[-1]
            self.assertEqual((last.action, last.detail, last.rank, last.who),
                             (*expected[:3], "root"))
            self.assertTrue(last.outcome.startswith(expected[-1]), last)
            self.assertIn("127.0.0.1", getattr(last, "from"))
        # The log says so at any level, and has the last one.
        operator.Drain(admin.DrainRequest(), timeout=WAIT)
        self.assertEqual(job.shards[0].process.wait(WAIT), 0)
        for _, (action, *_) in CHANGES.values():
            self.assertRegex(job.shards[0].log(),
                             f'audit: {{.*"action": "{action}", "who": "root"')

    def test_a_change_that_is_refused_is_audited(self):
        job = self.job()
        operator = job.peer().admin
        for call, request, action, code in (
                (operator.SetRule, admin.SetRuleRequest(rule="none such"),
                 "set_rule", Code.INVALID_ARGUMENT),
                (operator.EvictWorker, admin.EvictWorkerRequest(rank=5),
                 "evict", Code.NOT_FOUND)):
            self.assertEqual(failure(call, request, timeout=WAIT)[0], code)
            last = self.audit(job)[-1]
            self.assertEqual((last.action, last.who), (action, "root"))
            self.assertTrue(last.outcome.startswith(code.name), last)


class SessionsTest(AuditCase):
    """Whoever uses another identity's session."""

    def test_each_call_is_refused_counted_and_audited(self):
        job, worker = self.seeded_by_alice()
        thief = self.as_(job, "bob").peer()
        session = {"epoch": worker.epoch, "session": worker.session}
        frame = worker.frame_of(worker.indices(0), values(7), 0)
        trip = worker.trip_frame(0, values(7))
        calls = {
            "Coordinator/Commit": (thief.coordinator.Commit,
                                   worker.commit_request(0)),
            "Coordinator/WaitRound": (thief.coordinator.WaitRound,
                                      agg.WaitRequest(round=0, **session)),
            "Coordinator/Leave": (thief.coordinator.Leave,
                                  agg.LeaveRequest(**session)),
            "Coordinator/Attend": (thief.coordinator.Attend,
                                   iter([agg.LeaseRenewal(**session)])),
            "Reductions/Reduce": (thief.reductions.Reduce,
                                  reduction.ReduceRequest(**session)),
            "Shard/Push": (thief.shard.Push, iter([frame])),
        }
        for count, (method, (call, request)) in enumerate(calls.items()):
            self.assert_fails(Code.PERMISSION_DENIED, "another identity", call,
                              request, timeout=WAIT)
            self.assertEqual(self.denied()["session"], count + 1, method)
            denials = self.denials(job, "bob", "agg.v1." + method)
            self.assertEqual(len(denials), 1, method)
            self.assertEqual(denials[0].session, worker.session)
            self.assertRegex(denials[0].outcome,
                             "^PERMISSION_DENIED: .*another identity")
        # In one trip (P41), too, which is a Push.
        self.assert_fails(Code.PERMISSION_DENIED, "another identity",
                          thief.shard.Push, iter([trip]), timeout=WAIT)
        self.assertEqual(self.denied()["session"], len(calls) + 1)
        self.assertEqual(sum(d.times for d in self.denials(
            job, "bob", "agg.v1.Shard/Push")), 2)

    def test_to_take_a_rank_over_or_up_again_is_refused(self):
        job, worker = self.seeded_by_alice()
        for count, fields in enumerate(
                ({}, {"resume_session": worker.session})):
            self.assert_fails(Code.PERMISSION_DENIED, "rank is 0", Worker,
                              self.as_(job, "bob"), 0, TENSORS, **fields)
            self.assertEqual(self.denied()["rank"], count + 1)
            denials = self.denials(job, "bob", "agg.v1.Coordinator/Join")
            self.assertEqual({d.rank for d in denials}, {0})
            self.assertEqual(sum(d.times for d in denials), count + 1)
        self.assertNotIn("bob", [r.who for r in self.audit(job)
                                 if r.action != "denial"])


class LimitsTest(AuditCase):
    """Whoever takes more than the limits say."""

    def joined(self, limits):
        """A job of two workers, and that of bob, who has these limits."""
        job = self.job(workers=2, limits={"bob": limits})
        Worker(self.as_(job, "alice"), 0, TENSORS).seed(values(0))
        return job, Worker(self.as_(job, "bob"), 1, TENSORS)

    def assert_overrun(self, job, code, method, limit):
        self.assertEqual(code, Code.RESOURCE_EXHAUSTED)
        # Or more, while the server still counts the Join that it has answered.
        self.assertGreaterEqual(self.denied()[limit], 1)
        self.assertRegex(
            self.denials(job, "bob", "agg.v1." + method)[-1].outcome,
            f'^RESOURCE_EXHAUSTED: {limit} of identity "bob" is .*; try again '
            "later$")

    def test_sessions_of_one_identity(self):
        job = self.job(workers=2, limits={"alice": "max_sessions: 1"})
        alice = self.as_(job, "alice")
        Worker(alice, 0, TENSORS)
        text = ('max_sessions of identity "alice" is 1; allowed: 1 at a time; '
                "try again later$")
        self.assert_fails(Code.RESOURCE_EXHAUSTED, "^" + text, Worker, alice,
                          1, TENSORS)
        denial = self.assert_denied_once(
            job, "alice", "agg.v1.Coordinator/Join", "max_sessions", text)
        self.assertEqual(denial.rank, 1)
        # Its own rank is no further one, and others have theirs.
        Worker(alice, 0, TENSORS)
        Worker(self.as_(job, "bob"), 1, TENSORS)
        self.assertEqual(self.denied()["max_sessions"], 1)

    def test_sessions_of_all(self):
        job = self.job(more="max_workers: 2\n",
                       extra="  limits { max_sessions: 1 }\n")
        worker = Worker(self.as_(job, "alice"), 0, TENSORS)
        text = ("max_sessions of all callers is 1; allowed: 1 at a time; "
                "try again later$")
        self.assert_fails(Code.RESOURCE_EXHAUSTED, "^" + text, Worker,
                          self.as_(job, "bob"), 1, TENSORS)
        self.assert_denied_once(job, "bob", "agg.v1.Coordinator/Join",
                                "max_sessions", text)
        worker.leave()

    def test_streams(self):
        job, bob = self.joined("max_streams: 1")
        stream = bob.attend()
        code, _ = failure(bob.coordinator.Attend, iter([]), timeout=WAIT)
        self.assert_overrun(job, code, "Coordinator/Attend", "max_streams")
        stream.cancel()

    def test_waiting_calls(self):
        job, bob = self.joined("max_waiting_calls: 1")
        waits = [bob.coordinator.WaitRound.future(agg.WaitRequest(
            epoch=bob.epoch, round=0, session=bob.session), timeout=WAIT)
            for _ in range(2)]
        refused = wait_until(lambda: [w for w in waits if w.done()],
                             "one of them is refused")
        self.assert_overrun(job, refused[0].code(), "Coordinator/WaitRound",
                            "max_waiting_calls")
        self.assertIn(len(refused), (1, 2))
        for wait in waits:
            wait.cancel()

    def test_joins(self):
        # One in 100 s, and one at once.
        job, bob = self.joined("joins_per_second: 0.01")
        code, _ = failure(Worker, self.as_(job, "bob"), bob.rank, TENSORS)
        self.assert_overrun(job, code, "Coordinator/Join", "joins_per_second")

    def test_bytes(self):
        # Four Pushes of 8 MiB.
        job, bob = self.joined("max_bytes_in_flight: 33554432")
        streams = [bob.open_push() for _ in range(5)]
        ended = wait_until(lambda: [s for s in streams if s.ended()],
                           "one of them is refused")
        self.assert_overrun(job, ended[0].code(), "Shard/Push",
                            "max_bytes_in_flight")
        self.assertIn(len(ended), (1, 2))
        for stream in streams:
            stream.cancel()

    def test_connections(self):
        job = self.job(extra="  limits { max_connections: 16 }\n")
        operator = job.peer().admin
        operator.ListAudit(admin.ListAuditRequest(), timeout=WAIT)
        host, port = job.addresses[0].split(":")
        many = [socket.create_connection((host, int(port)), WAIT)
                for _ in range(20)]
        for one in many:
            self.addCleanup(one.close)
        try:
            # The last one has no place, whichever of the others have.
            self.assertEqual(many[-1].recv(1), b"")
        except ConnectionResetError:
            pass
        self.assertGreater(self.denied()["max_connections"], 0)
        denials = [r for r in operator.ListAudit(admin.ListAuditRequest(),
                                                 timeout=WAIT).records
                   if r.detail == "connection"]
        self.assertEqual([(d.action, d.who) for d in denials],
                         [("denial", "")])
        self.assertIn("max_connections of all callers is 16; allowed: 16",
                      denials[0].outcome)
        self.assertEqual(getattr(denials[0], "from"), host)

    def test_watchers_of_health_do_not_keep_probes_out(self):
        job = self.job()
        # A connection takes 256 calls.
        channels = [job.bare().channel for _ in range(6)]
        watches = [channels[i // 200].unary_stream(WATCH)(b"", timeout=4 * WAIT)
                   for i in range(1100)]
        wait_until(lambda: sum(not w.is_active() for w in watches) >= 76,
                   "those beyond the limit have ended")
        reply = job.bare().channel.unary_unary(CHECK)(
            b"\x0a\x0bagg.v1.Live", timeout=WAIT)
        self.assertEqual(reply, b"\x08\x01")
        self.assertGreaterEqual(self.denied()["other_calls"], 76)
        denial = self.denials(job, "", WATCH[1:])[-1]
        self.assertIn("other_calls of all callers is 1024", denial.outcome)
        for watch in watches:
            watch.cancel()
