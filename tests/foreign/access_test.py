"""Who may do what (P45), against servers with identities."""

import grpc

from access_case import TOKENS, AccessCase, Holder
from client import Worker, failure, round_of
from foreign_test_case import TENSORS, Code, values
from server_process import WAIT, wait_until
from stubs import admin, agg, control, external_rule, reduction


class AccessTest(AccessCase):

    def calls(self, peer):
        """(method, call with an empty request) of every method there is."""
        for stub, module, service in (
                (peer.coordinator, agg, "Coordinator"),
                (peer.shard, agg, "Shard"),
                (peer.control, control, "ShardControl"),
                (peer.admin, admin, "Admin"),
                (peer.external_rules, external_rule, "ExternalRules")):
            for method in module.DESCRIPTOR.services_by_name[service].methods:
                call = getattr(stub, method.name)
                request = b""
                argument = (iter([request]) if method.client_streaming
                            else request)
                yield (f"agg.v1.{service}/{method.name}",
                       lambda call=call, argument=argument:
                       call(argument, timeout=WAIT))

    def test_nobody_without_a_token_may_call_anything(self):
        job = self.job()
        for method, call in self.calls(Holder(job).peer()):
            code, text = failure(call)
            self.assertEqual(code, Code.UNAUTHENTICATED, method)
            self.assertIn("token", text)

    def test_a_wrong_token_is_worth_nothing(self):
        job = self.job()
        for method, call in self.calls(Holder(job, "wrong-token-01234567").peer()):
            code, text = failure(call)
            self.assertEqual(code, Code.UNAUTHENTICATED, method)
            self.assertNotIn("wrong", text)
        self.assertNotIn("wrong-token", job.shards[0].log())

    def test_each_role_is_refused_what_it_lacks(self):
        job = self.job()
        allowed = {
            "seer": {"agg.v1.Coordinator/Observe",
                     "agg.v1.Coordinator/GetStatus", "agg.v1.Shard/Pull",
                     "agg.v1.Admin/ListTensors", "agg.v1.Admin/ListRounds",
                     "agg.v1.Admin/GetVersion"},
            "shard": {"agg.v1.Coordinator/GetStatus"},
        }
        for name, methods in allowed.items():
            for method, call in self.calls(self.as_(job, name).peer()):
                if method in methods or (
                        name == "shard" and "ShardControl" in method):
                    continue
                code, text = failure(call)
                self.assertEqual(code, Code.PERMISSION_DENIED,
                                 f"{name} {method}")
                self.assertRegex(text, "needs the role (worker|admin|shard|"
                                 "rule|observer or admin)")
        peer = self.as_(job, "alice").peer()
        for method, call in self.calls(peer):
            if ("Admin" in method or "ShardControl" in method
                    or "ExternalRules" in method):
                self.assertEqual(failure(call)[0], Code.PERMISSION_DENIED,
                                 method)

    def test_each_role_may_do_its_own(self):
        job, worker = self.seeded_by_alice()
        round_of([worker], [values(2)])
        seer = self.as_(job, "seer").peer()
        self.assertEqual(seer.coordinator.GetStatus(
            agg.StatusRequest(), timeout=WAIT).version, 1)
        seer.admin.ListRounds(admin.ListRoundsRequest(), timeout=WAIT)
        reply = job.peer().admin.SetRule(admin.SetRuleRequest(rule="mean"),
                                         timeout=WAIT)
        self.assertEqual(reply.after.rule, "mean")

    def test_a_session_is_its_owners_alone(self):
        job, worker = self.seeded_by_alice()
        thief = self.as_(job, "bob").peer()
        for call, request in (
                (thief.coordinator.Commit, worker.commit_request(0)),
                (thief.coordinator.WaitRound, agg.WaitRequest(
                    epoch=worker.epoch, round=0, session=worker.session)),
                (thief.coordinator.Leave, agg.LeaveRequest(
                    epoch=worker.epoch, session=worker.session)),
                (thief.reductions.Reduce, reduction.ReduceRequest(
                    epoch=worker.epoch, session=worker.session, giver=1,
                    call=1, what="x", values=[1]))):
            self.assert_fails(Code.PERMISSION_DENIED, "another identity", call,
                              request, timeout=WAIT)
        self.assert_fails(
            Code.PERMISSION_DENIED, "another identity",
            thief.coordinator.Attend,
            iter([agg.LeaseRenewal(epoch=worker.epoch,
                                   session=worker.session)]), timeout=WAIT)
        frame = worker.frame_of(worker.indices(0), values(7), 0)
        self.assert_fails(Code.PERMISSION_DENIED, "another identity",
                          thief.shard.Push, iter([frame]), timeout=WAIT)
        # Nothing of it has harmed the owner.
        self.assertEqual(round_of([worker], [values(2)])[0].version, 1)
        self.assert_tensors(worker.pull(1), values(2))

    def test_an_unknown_session_is_not_a_way_in(self):
        job, worker = self.seeded_by_alice()
        thief = self.as_(job, "bob").peer()
        self.assert_fails(Code.NOT_FOUND, "not known", thief.coordinator.Leave,
                          agg.LeaveRequest(epoch=worker.epoch,
                                           session=worker.session + 1),
                          timeout=WAIT)

    def test_a_rank_is_taken_over_by_its_owner_and_by_an_admin(self):
        job, worker = self.seeded_by_alice()
        self.assert_fails(Code.PERMISSION_DENIED, "rank is 0", Worker,
                          self.as_(job, "bob"), 0, TENSORS)
        self.assert_fails(Code.PERMISSION_DENIED, "rank is 0", Worker,
                          self.as_(job, "bob"), 0, TENSORS,
                          resume_session=worker.session)
        again = Worker(self.as_(job, "alice"), 0, TENSORS)
        boss = Worker(self.as_(job, "boss"), 0, TENSORS)
        self.assertNotEqual(again.session, boss.session)
        self.assert_fails(Code.PERMISSION_DENIED, "rank is 0", Worker,
                          self.as_(job, "alice"), 0, TENSORS)
        actions = [(r.action, r.who, r.rank) for r in self.audit(job)]
        self.assertIn(("join", "alice", 0), actions)
        self.assertIn(("takeover", "alice", 0), actions)
        self.assertIn(("takeover", "boss", 0), actions)
        self.assertIn(("denial", "bob", 0), actions)

    def test_tokens_are_replaced_without_a_drop(self):
        job, worker = self.seeded_by_alice()
        stream = worker.attend()
        new = "alice-token-new-012"
        self.write_tokens("alice", new, TOKENS["alice"])

        first = Holder(job, TOKENS["alice"]).peer().coordinator
        second = Holder(job, new).peer().coordinator

        def is_taken(coordinator):
            code = failure(coordinator.Leave,
                           agg.LeaveRequest(epoch=worker.epoch, session=1),
                           timeout=WAIT)[0]
            return code != Code.UNAUTHENTICATED
        wait_until(lambda: is_taken(second), "the new token is valid")
        self.assertTrue(is_taken(first))
        self.write_tokens("alice", new)
        wait_until(lambda: not is_taken(first),
                   "the old token is not valid any more")
        # The stream was admitted when it began, and goes on.
        stream.send(agg.LeaseRenewal(epoch=worker.epoch,
                                     session=worker.session))
        self.assertEqual(stream.receive().kind, agg.JobEvent.RENEWED)
        stream.cancel()

    def test_shards_know_each_other_and_sessions_stay_bound(self):
        job, worker = self.seeded_by_alice(num_shards=2)
        round_of([worker], [values(2)])
        job.shards[0].kill()
        job.start(0)
        alice = self.as_(job, "alice")

        def resumed():
            try:
                return Worker(alice, 0, TENSORS,
                              resume_session=worker.session,
                              resume_version=1)
            except grpc.RpcError as error:
                self.assertEqual(error.code(), Code.UNAVAILABLE,
                                 error.details())
                return None

        def thief_is_refused():
            code, text = failure(Worker, self.as_(job, "bob"), 0, TENSORS,
                                 resume_session=worker.session)
            self.assertIn(code, (Code.UNAVAILABLE, Code.PERMISSION_DENIED),
                          text)
            return code == Code.PERMISSION_DENIED
        # The new coordinator heard from the other shard whose session it is,
        # before its owner came back.
        wait_until(thief_is_refused, "another identity is refused")
        back = wait_until(resumed, "its owner is back")
        self.assertEqual(back.session, worker.session)
        self.assertFalse(back.reply.rewound)
        actions = [(r.action, r.who, r.rank, r.session)
                   for r in self.audit(job)]
        self.assertIn(("resume", "alice", 0, worker.session), actions)
        self.assertIn(("denial", "bob", 0, 0), actions)
        frame = back.frame_of(back.indices(1), values(7), 1)
        self.assert_fails(Code.PERMISSION_DENIED, "another identity",
                          self.as_(job, "bob").peer(1).shard.Push,
                          iter([frame]), timeout=WAIT)
        self.assertEqual(round_of([back], [values(3)], 1)[0].version, 2)

    def test_one_shard_asks_its_own_address_with_its_token(self):
        job = self.job()
        beside = job.start_beside(0)
        wait_until(lambda: "standby: another coordinator" in beside.log(),
                   "a second shard 0 has found the first (P21)")
        for asked in job.shards[0].log(), beside.log():
            self.assertNotIn("denial", asked)
        self.assertNotIn("agg.v1.Coordinator/GetStatus",
                         [record.detail for record in self.audit(job)])

    def test_a_shard_with_another_token_is_not_attached(self):
        self.write_tokens("shard", "another-shard-token-1")
        job = self.job()  # one shard, which accepts that token
        attach = control.AttachRequest(epoch=1, num_shards=1,
                                       protocol_version=1)
        stranger = Holder(job, TOKENS["shard"]).peer()
        self.assert_fails(Code.UNAUTHENTICATED, "token",
                          stranger.control.Attach, iter([attach]),
                          timeout=WAIT)
        self.assert_fails(Code.PERMISSION_DENIED, "role shard",
                          job.peer().control.Attach, iter([attach]),
                          timeout=WAIT)

    def test_what_was_done_is_audited(self):
        audit = self.folder / "audit.jsonl"
        job, worker = self.seeded_by_alice(
            extra=f'  audit {{ path: "{audit}" }}\n')
        operator = job.peer().admin
        operator.SetRule(admin.SetRuleRequest(rule="mean"), timeout=WAIT)
        operator.SetLogLevel(admin.SetLogLevelRequest(level="info"),
                             timeout=WAIT)
        failure(operator.TakeCheckpoint, admin.TakeCheckpointRequest(),
                timeout=WAIT)
        operator.EvictWorker(admin.EvictWorkerRequest(rank=0, reason="x\ny"),
                             timeout=WAIT)
        denied = self.as_(job, "bob").peer().admin
        for _ in range(20):
            failure(denied.Drain, admin.DrainRequest(), timeout=WAIT)
        records = {r.action: r for r in self.audit(job)}
        self.assertEqual(records["join"].session, worker.session)
        self.assertEqual(records["set_rule"].who, "root")
        self.assertIn("127.0.0.1", getattr(records["set_rule"], "from"))
        self.assertEqual(records["evict"].detail, "x\ny")
        self.assertEqual(records["evict"].rank, 0)
        self.assertIn("FAILED_PRECONDITION", records["checkpoint"].outcome)
        self.assertEqual(records["denial"].who, "bob")
        self.assertEqual(records["denial"].times, 20)
        # Besides, later: a line with the count of what is alike.
        lines = [line for line in job.shards[0].log().splitlines()
                 if 'audit: {"time": "20' in line and '"times"' not in line]
        self.assertEqual(len(lines), len(self.audit(job)))
        wait_until(lambda: '"action": "evict"' in audit.read_text(),
                   "the file has it")

    def test_shards_of_one_host_have_a_file_each(self):
        audit = self.folder / "audit.jsonl"
        job = self.job(num_shards=2, extra=f'  audit {{ path: "{audit}" }}\n')
        for ordinal in range(2):
            failure(job.bare(ordinal).control.Probe,
                    control.ProbeRequest(), timeout=WAIT)
        for path in (audit, self.folder / "audit.jsonl.shard1"):
            wait_until(lambda path=path: '"action": "denial"'
                       in path.read_text(), f"{path.name} has it")

    def test_without_identities_everybody_may_and_the_log_says_so(self):
        job = self.start()
        self.assertIn("whoever may connect to this port may do everything",
                      job.shards[0].log())
        job.peer().admin.ListAudit(admin.ListAuditRequest(), timeout=WAIT)

    def test_health_and_reflection_have_their_switches(self):
        def health(job):
            return failure(job.bare().channel.unary_unary(
                "/grpc.health.v1.Health/Check"), b"", timeout=WAIT)[0]
        off = self.job(extra='  health: "off"\n')
        self.assertEqual(health(off), Code.UNIMPLEMENTED)
        on = self.job()
        reply = on.bare().channel.unary_unary(
            "/grpc.health.v1.Health/Check")(b"\x0a\x0bagg.v1.Live",
                                            timeout=WAIT)
        self.assertEqual(reply, b"\x08\x01")
        reflection = ("/grpc.reflection.v1alpha.ServerReflection/"
                      "ServerReflectionInfo")
        self.assert_fails(Code.UNIMPLEMENTED, "^", on.bare().channel
                          .stream_stream(reflection), iter([b""]),
                          timeout=WAIT)
        shown = self.job(extra='  reflection: "open"\n')
        self.assertEqual(len(list(shown.bare().channel.stream_stream(
            reflection)(iter([b""]), timeout=WAIT))), 1)
