"""deploy/k8s: every job's overlay renders, every object fits the schemas, and
the objects fit each other, the server's flags and the project's other files."""

import pathlib
import re
import unittest

from tests.deploy import k8s_render as k8s
from tests.deploy.k8s_render import matches, only

WHY_NOT = k8s.why_no_render()
WHY_NO_SCHEMAS = k8s.why_no_schemas()
for reason in {WHY_NOT, WHY_NO_SCHEMAS} - {None}:
    print("k8s_test skips cases:", reason)

K8S = k8s.ROOT / "deploy/k8s"
GRPC_PORT = 50051


def container(objects):
    spec = only(objects, "StatefulSet")["spec"]["template"]["spec"]
    (item,) = spec["containers"]
    return item


def flag(objects, name):
    """The value of a flag of the server."""
    (value,) = [argument.partition("=")[2]
                for argument in container(objects)["args"]
                if argument.startswith(f"--{name}=")]
    return value


def config_of(objects):
    (config,) = [item for item in objects if item["kind"] == "ConfigMap"
                 and item["metadata"]["name"].startswith("agg-config-")]
    return config


@unittest.skipIf(WHY_NOT, WHY_NOT)
class OverlaysTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.overlays = {name: k8s.render(f"k8s/overlays/{name}")
                        for name in k8s.OVERLAYS}
        cls.examples = {path.name: k8s.render(f"k8s/examples/{path.name}")
                        for path in sorted((K8S / "examples").iterdir())}
        cls.workers = cls.examples["workers"]
        cls.save_model = cls.examples["save_model"]
        cls.checkpoints = cls.examples["checkpoints"]
        cls.workers_tls = cls.examples["workers_tls"]

    def each(self):
        return self.overlays.items()

    def test_every_folder_of_overlays_is_tested(self):
        self.assertEqual({path.name for path in (K8S / "overlays").iterdir()},
                         {*k8s.OVERLAYS, k8s.MONITORING, k8s.TLS_MONITOR,
                          k8s.EXPECTED_JOB})

    @unittest.skipIf(WHY_NO_SCHEMAS, WHY_NO_SCHEMAS)
    def test_objects_fit_the_schemas(self):
        for version in k8s.VERSIONS:
            for name, objects in [*self.overlays.items(),
                                  *self.examples.items()]:
                core = [o for o in objects if not k8s.is_custom(o)]
                core += [job for o in objects if o["kind"] == "JobSet"
                         for job in k8s.jobs_of(o)]
                self.assertTrue(core)
                errors = k8s.schema_errors(core, version)
                self.assertEqual(len(errors), len(core))
                self.assertEqual(
                    [f"{name} {version} {k8s.named(item)} {error}"
                     for item, error in zip(core, errors) if error], [])

    @unittest.skipIf(WHY_NO_SCHEMAS, WHY_NO_SCHEMAS)
    def test_the_schemas_refuse_what_is_wrong(self):
        good = only(self.overlays["cpu"], "Service", "agg")
        misspelt = {**good, "spec": {**good["spec"], "clusterIp": "None"}}
        wrong = {**good, "spec": {**good["spec"], "ports": "50051"}}
        unknown = {**good, "kind": "Servant"}
        for version in k8s.VERSIONS:
            self.assertEqual(
                [bool(error) for error in k8s.schema_errors(
                    [good, misspelt, wrong, unknown], version)],
                [False, True, True, True])

    @unittest.skipIf(WHY_NO_SCHEMAS, WHY_NO_SCHEMAS)
    def test_the_jobset_fits_its_own_schema(self):
        good = only(self.examples["workers_jobset"], "JobSet")
        spec = good["spec"]
        misspelt = {**good, "spec": {**spec, "failurePolicies": {}}}
        wrong = {**good, "spec": {**spec, "failurePolicy": {
            "maxRestarts": "3"}}}
        deep = {**good, "spec": {**spec, "replicatedJobs": [
            {**spec["replicatedJobs"][0], "count": 1}]}}
        errors = k8s.jobset_errors([good, misspelt, wrong, deep])
        self.assertEqual([bool(error) for error in errors],
                         [False, True, True, True], errors)

    def test_objects_are_there_once_and_in_the_namespace(self):
        kinds = {"Namespace", "StatefulSet", "Service", "ConfigMap",
                 "PodDisruptionBudget", "NetworkPolicy"}
        for name, objects in self.each():
            names = [k8s.named(item) for item in objects]
            self.assertEqual(len(names), len(set(names)))
            # No autoscaler: deploy/docs/kubernetes.md says why. No monitoring:
            # it is applied once, and not with each job.
            more = set() if name in k8s.PLAIN else {"Issuer", "Certificate"}
            self.assertEqual({item["kind"] for item in objects}, kinds | more)
            for item in objects:
                if item["kind"] != "Namespace":
                    self.assertEqual(item["metadata"]["namespace"],
                                     "agg-server", k8s.named(item))

    def test_the_configuration_names_every_pod(self):
        for _, objects in self.each():
            text = config_of(objects)["data"]["job.textproto"]
            stateful_set = only(objects, "StatefulSet")["spec"]
            self.assertEqual(
                re.findall(r'(?m)^shards: "(.*)"$', text),
                [f"agg-{i}.{stateful_set['serviceName']}.agg-server.svc:"
                 f"{GRPC_PORT}" for i in range(stateful_set["replicas"])])
            self.assertEqual(flag(objects, "shard"), "auto")
            self.assertEqual(stateful_set["podManagementPolicy"], "Parallel")
            self.assertEqual(stateful_set["updateStrategy"]["type"],
                             "RollingUpdate")

    def test_a_changed_configuration_changes_the_pods(self):
        def edit(deploy):
            path = deploy / "k8s/base/job.textproto"
            path.write_text(path.read_text() + "clip_norm: 1\n")

        before = self.overlays["cpu"]
        after = k8s.render("k8s/overlays/cpu", edit)
        volumes = []
        for objects in (before, after):
            spec = only(objects, "StatefulSet")["spec"]["template"]["spec"]
            (name,) = [volume["configMap"]["name"]
                       for volume in spec["volumes"] if "configMap" in volume]
            self.assertEqual(name, config_of(objects)["metadata"]["name"])
            volumes.append(name)
        self.assertNotEqual(*volumes)

    def test_the_overlay_of_the_operating_guide(self):
        if k8s.minor_version() < 21:
            print("k8s_test skips the guide's overlay: needs kubectl 1.21")
            self.skipTest("needs kubectl 1.21")
        guide = k8s.guide()
        example = re.search(r"(?s)```yaml\n# my-job/kustomization.yaml\n(.*?)"
                            r"```", guide).group(1)
        path = "../agg_server/deploy/k8s/overlays/cpu"
        self.assertIn(path, example)

        def edit(deploy):
            folder = deploy / "k8s/my-job"
            folder.mkdir()
            (folder / "job.textproto").write_text('job: "mine"\n')
            (folder / "kustomization.yaml").write_text(
                example.replace(path, "../overlays/cpu")
                + "namespace: other\n")

        objects = k8s.render("k8s/my-job", edit)
        self.assertEqual(only(objects, "StatefulSet")["spec"]["replicas"], 4)
        self.assertEqual(container(objects)["image"],
                         "REGISTRY/agg-server:VERSION")
        self.assertEqual(config_of(objects)["data"],
                         {"job.textproto": 'job: "mine"\n'})
        self.assertEqual({item["metadata"].get("namespace", "other")
                          for item in objects}, {"other"})

    def test_ports_are_the_ones_that_the_flags_open(self):
        for _, objects in self.each():
            ports = {port["name"]: port["containerPort"]
                     for port in container(objects)["ports"]}
            self.assertEqual(ports, {
                "grpc": GRPC_PORT,
                "metrics": int(flag(objects, "metrics_port"))})
            annotations = only(objects, "StatefulSet")["spec"]["template"][
                "metadata"]["annotations"]
            self.assertEqual(annotations["prometheus.io/port"],
                             str(ports["metrics"]))

    def test_probes_ask_the_health_that_the_server_serves(self):
        names = (k8s.ROOT / "server/rpc/rpc_server.h").read_text()
        (live,) = re.findall(r'kLiveHealth\[\] = "(.*)"', names)
        for objects in (self.overlays[name] for name in k8s.PLAIN):
            for probe, service in (("startupProbe", {"service": live}),
                                   ("readinessProbe", {}),
                                   ("livenessProbe", {"service": live})):
                probe = container(objects)[probe]
                self.assertEqual(probe["grpc"], {"port": GRPC_PORT, **service})
                self.assertEqual(
                    {"exec", "grpc", "httpGet", "tcpSocket"} & set(probe),
                    {"grpc"})

    def test_services_select_the_pods(self):
        for _, objects in self.each():
            labels = only(objects, "StatefulSet")["spec"]["template"][
                "metadata"]["labels"]
            headless = only(objects, "Service", "agg")["spec"]
            self.assertEqual(headless["clusterIP"], "None")
            self.assertIs(headless["publishNotReadyAddresses"], True)
            self.assertTrue(matches(headless["selector"], labels))
            client = only(objects, "Service", "agg-client")["spec"]
            self.assertTrue(matches(client["selector"], {
                **labels, "statefulset.kubernetes.io/pod-name": "agg-0"}))
            self.assertNotIn("clusterIP", client)
            for service in (headless, client):
                self.assertEqual(
                    [(port["name"], port["port"], port["targetPort"])
                     for port in service["ports"]],
                    [("grpc", GRPC_PORT, "grpc"), ("metrics", 9464, "metrics")])

    def test_a_drain_fits_into_the_grace_period(self):
        for _, objects in self.each():
            pod = only(objects, "StatefulSet")["spec"]["template"]["spec"]
            # A drain that hangs is ended 5 s after its time.
            self.assertGreater(pod["terminationGracePeriodSeconds"],
                               float(flag(objects, "drain_seconds")) + 5)

    def test_pods_may_do_nothing_that_they_need_not(self):
        templates = [only(objects, "StatefulSet")["spec"]["template"]["spec"]
                     for objects in self.overlays.values()]
        templates += [only(objects, "Job")["spec"]["template"]["spec"]
                      for objects in (self.workers, self.save_model,
                                      self.workers_tls)]
        templates += [job["spec"]["template"]["spec"] for job in k8s.jobs_of(
            only(self.examples["workers_jobset"], "JobSet"))]
        for pod in templates:
            self.assertIs(pod["automountServiceAccountToken"], False)
            self.assertIs(pod["securityContext"]["runAsNonRoot"], True)
            self.assertGreater(pod["securityContext"]["runAsUser"], 0)
            self.assertEqual(pod["securityContext"]["seccompProfile"],
                             {"type": "RuntimeDefault"})
            for item in pod["containers"]:
                self.assertEqual(item["securityContext"], {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]}})
                for mount in item.get("volumeMounts", []):
                    (volume,) = [volume for volume in pod["volumes"]
                                 if volume["name"] == mount["name"]]
                    self.assertNotIn("hostPath", volume)
                    if "secret" in volume or "configMap" in volume:
                        self.assertIs(mount["readOnly"], True)
            for key in ("hostNetwork", "hostPID", "hostIPC"):
                self.assertNotIn(key, pod)

    def test_memory_and_gpus_are_limited_to_what_is_asked_for(self):
        for name, objects in self.each():
            resources = container(objects)["resources"]
            self.assertEqual(resources["requests"], resources["limits"])
            gpus = resources["limits"].get("nvidia.com/gpu")
            text = config_of(objects)["data"]["job.textproto"]
            self.assertEqual(gpus, "1" if "gpu" in name else None)
            self.assertEqual('backend: "cuda"' in text, "gpu" in name)
            volumes = only(objects, "StatefulSet")["spec"]["template"]["spec"][
                "volumes"]
            (shm,) = [v for v in volumes if v["name"] == "shm"]
            self.assertEqual(shm["emptyDir"]["medium"], "Memory")

    def test_shards_are_disrupted_one_at_a_time_and_apart(self):
        for _, objects in self.each():
            stateful_set = only(objects, "StatefulSet")["spec"]
            template = stateful_set["template"]
            labels = template["metadata"]["labels"]
            budget = only(objects, "PodDisruptionBudget")["spec"]
            self.assertEqual(budget["maxUnavailable"], 1)
            self.assertTrue(matches(budget["selector"], labels))
            self.assertEqual(stateful_set["updateStrategy"]["rollingUpdate"],
                             {"maxUnavailable": 1})
            (apart,) = template["spec"]["affinity"]["podAntiAffinity"][
                "requiredDuringSchedulingIgnoredDuringExecution"]
            self.assertEqual(apart["topologyKey"], "kubernetes.io/hostname")
            self.assertTrue(matches(apart["labelSelector"], labels))
            # Pods that are not ready are being filled again: who lets them go
            # loses both copies of a part.
            self.assertEqual(budget.get("unhealthyPodEvictionPolicy",
                                        "IfHealthyBudget"), "IfHealthyBudget")
            # The guide names what places the shards, and nothing else.
            guide = k8s.guide()
            self.assertNotIn("topologySpreadConstraints", template["spec"])
            self.assertEqual(re.findall("(?i)topology.?spread", guide), [])
            self.assertEqual(re.findall("a required (anti-affinity)", guide),
                             ["anti-affinity"])

    def test_a_handover_fits_into_the_drain(self):
        text = (k8s.ROOT / "server/coordinator/checkpoint_schedule.h").read_text()
        (limit,) = re.findall(r"kLimit = absl::Seconds\((\d+)\)", text)
        for _, objects in self.each():
            drain = float(flag(objects, "drain_seconds"))
            self.assertGreaterEqual(drain, 2 * int(limit))

    def test_checkpoints_lie_on_a_volume_of_each_shard(self):
        text = config_of(self.checkpoints)["data"]["job.textproto"]
        (path,) = re.findall(r'checkpoint \{ path: "(.*?)"', text)
        stateful_set = only(self.checkpoints, "StatefulSet")["spec"]
        (claim,) = stateful_set["volumeClaimTemplates"]
        mounts = {mount["mountPath"]: mount["name"]
                  for mount in container(self.checkpoints)["volumeMounts"]}
        self.assertEqual(mounts[path], claim["metadata"]["name"])
        self.assertIn("/etc/agg", mounts)
        # The rest of the job is the base's.
        base = config_of(self.overlays["cpu"])["data"]["job.textproto"]
        self.assertTrue(text.startswith(base))

    def test_the_guides_patch_puts_all_shards_on_one_node(self):
        guide = k8s.guide()
        patch = re.search(r"(?s)```yaml\n# my-job/one_node.yaml.*?\n(.*?)```",
                          guide).group(1)

        def edit(deploy):
            folder = deploy / "k8s/my-job"
            folder.mkdir()
            (folder / "one_node.yaml").write_text(patch)
            (folder / "kustomization.yaml").write_text(
                "resources:\n  - ../overlays/cpu\n"
                "patches:\n  - path: one_node.yaml\n")

        pod = only(k8s.render("k8s/my-job", edit), "StatefulSet")["spec"][
            "template"]["spec"]
        self.assertNotIn("affinity", pod)

    def test_the_network_policy_lets_through_who_is_needed(self):
        for _, objects in self.each():
            policy = only(objects, "NetworkPolicy")["spec"]
            shard = only(objects, "StatefulSet")["spec"]["template"][
                "metadata"]["labels"]
            worker = only(self.workers, "Job")["spec"]["template"]["metadata"][
                "labels"]
            prometheus = {"app.kubernetes.io/name": "prometheus"}
            self.assertTrue(matches(policy["podSelector"], shard))
            self.assertEqual(set(policy["policyTypes"]), {"Ingress", "Egress"})

            def ports(labels, namespace):
                """What a pod with these labels may reach."""
                return {port["port"] for rule in policy["ingress"]
                        for peer in rule["from"]
                        if matches(peer["podSelector"], labels)
                        and matches(peer.get("namespaceSelector", {
                            "name": "agg-server"}), namespace)
                        for port in rule["ports"]}

            here = {"name": "agg-server"}
            self.assertEqual(ports(shard, here), {"grpc"})
            self.assertEqual(ports(worker, here), {"grpc"})
            self.assertEqual(ports({"app": "other"}, here), set())
            self.assertEqual(ports(prometheus, {
                "kubernetes.io/metadata.name": "monitoring"}), {"metrics"})
            self.assertEqual(ports(worker, {"name": "else"}), set())
            self.assertEqual(ports(worker, {"agg-server/workers": "allowed"}),
                             {"grpc"})

    def test_the_model_is_pulled_from_the_jobs_coordinator(self):
        template = only(self.save_model, "Job")["spec"]["template"]
        (item,) = template["spec"]["containers"]
        text = config_of(self.overlays["cpu"])["data"]["job.textproto"]
        address = re.search(r'(?m)^shards: "(.*)"$', text).group(1)
        self.assertIn(f"--coordinator={address}", item["args"])
        (output,) = [argument.partition("=")[2] for argument in item["args"]
                     if argument.startswith("--output=")]
        # Onto the volume: the root is read-only, and ends with the pod.
        (mount,) = item["volumeMounts"]
        self.assertEqual(str(pathlib.Path(output).parent), mount["mountPath"])
        (volume,) = template["spec"]["volumes"]
        claim = only(self.save_model, "PersistentVolumeClaim")
        self.assertEqual((mount["name"], volume["name"],
                          volume["persistentVolumeClaim"]["claimName"]),
                         (volume["name"], "model", claim["metadata"]["name"]))
        # The NetworkPolicy lets it through as it does the workers.
        labels = only(self.workers, "Job")["spec"]["template"]["metadata"][
            "labels"]
        for key in ("component", "part-of"):
            name = f"app.kubernetes.io/{key}"
            self.assertEqual(template["metadata"]["labels"][name],
                             labels[name])

    def test_a_worker_that_ends_comes_back_with_its_rank(self):
        job = only(self.workers, "Job")["spec"]
        # Restarts of each rank, and not of all together.
        self.assertGreater(job["backoffLimitPerIndex"], 0)
        self.assertNotIn("backoffLimit", job)
        self.assertEqual(job["template"]["spec"]["restartPolicy"], "Never")
        # A node that is gone never says that its pod has ended.
        self.assertEqual(job["podReplacementPolicy"], "TerminatingOrFailed")
        self.assertNotIn("podFailurePolicy", job)

    def test_gangs_are_the_same_workers_in_a_queue(self):
        job = only(self.workers, "Job")
        gang = only(self.examples["workers_gang"], "Job")
        jobset = only(self.examples["workers_jobset"], "JobSet")
        (member,) = k8s.jobs_of(jobset)
        queue = "kueue.x-k8s.io/queue-name"
        self.assertNotIn(queue, job["metadata"]["labels"])
        self.assertNotIn("suspend", job["spec"])
        for item in (gang, jobset):
            self.assertEqual(item["metadata"]["labels"].pop(queue),
                             "agg-server")
            # Else pods start before the queue has room for all.
            self.assertIs(item["spec"].pop("suspend"), True)
            self.assertEqual(item["metadata"], job["metadata"])
        self.assertEqual(gang["spec"], job["spec"])
        self.assertEqual(member["spec"], job["spec"])
        self.assertEqual(jobset["spec"]["replicatedJobs"][0]["replicas"], 1)
        self.assertGreater(jobset["spec"]["failurePolicy"]["maxRestarts"], 0)

    def test_the_guides_commands_name_what_is_there(self):
        guide = k8s.guide()
        objects = self.overlays["cpu"]
        stateful_set = only(objects, "StatefulSet")
        name = stateful_set["metadata"]["name"]
        for pattern, there in (
                (r"delete pdb ([\w-]+)",
                 [only(objects, "PodDisruptionBudget")["metadata"]["name"]]),
                (r"scale statefulset/([\w-]+)", [name]),
                (r"delete pod ([\w-]+) --force --grace-period=0",
                 [f"{name}-{i}"
                  for i in range(stateful_set["spec"]["replicas"])]),
                # As Kubernetes spells it: another key ends no pod.
                (r"kubectl taint nodes NODE (\S+)",
                 ["node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
                  "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute-"])):
            with self.subTest(pattern):
                found = re.findall(pattern, guide)
                self.assertTrue(found)
                self.assertLessEqual(set(found), set(there))

    def test_the_guide_has_every_example(self):
        guide = k8s.guide()
        self.assertEqual([name for name in self.examples
                          if f"`examples/{name}`" not in guide], [])
        for name in re.findall(r"deploy/k8s/examples/(\w+)", guide):
            self.assertIn(name, self.examples)

    def test_the_guide_names_the_oldest_version(self):
        guide = k8s.guide()
        self.assertEqual(re.findall(r"Kubernetes ([\d.]+) or newer", guide),
                         [k8s.VERSIONS[0]])
        self.assertEqual(
            re.findall(r"schemas of Kubernetes ([\d., and]+\d)", guide),
            [f"{k8s.VERSIONS[0]}, {k8s.VERSIONS[1]} and {k8s.VERSIONS[2]}"])

    def test_workers_have_the_ranks_that_the_job_expects(self):
        job = only(self.workers, "Job")["spec"]
        for _, objects in self.each():
            text = config_of(objects)["data"]["job.textproto"]
            workers = int(re.search(r"(?m)^workers: (\d+)$", text).group(1))
            self.assertEqual((job["completions"], job["parallelism"]),
                             (workers, workers))
            (item,) = job["template"]["spec"]["containers"]
            self.assertEqual(job["completionMode"], "Indexed")
            self.assertIn("--rank=$(JOB_COMPLETION_INDEX)", item["args"])
            self.assertIn(f"--workers={workers}", item["args"])
            address = re.search(r'(?m)^shards: "(.*)"$', text).group(1)
            self.assertIn(f"--coordinator={address}", item["args"])


if __name__ == "__main__":
    unittest.main()
