"""deploy/k8s/overlays/tls: certificates, Secrets, identities, probes and
scraping fit each other, and its probes get an answer of a server with TLS."""

import fnmatch
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

from tests.deploy import k8s_render as k8s
from tests.deploy.k8s_render import matches, only

WHY_NOT = k8s.why_no_render()
if WHY_NOT:
    print("k8s_tls_test skips cases:", WHY_NOT)

CONFIG = k8s.ROOT / "deploy/k8s/overlays/tls/job.textproto"
LONGEST = 60
# Of cert-manager.io/v1, what is used here and what they may be.
USAGES = {"digital signature", "server auth", "client auth"}
CERTIFICATE_FIELDS = {
    "isCA", "commonName", "secretName", "duration", "renewBefore", "dnsNames",
    "ipAddresses", "uris", "usages", "privateKey", "issuerRef"}


def hours(text):
    return int(re.fullmatch(r"(\d+)h", text).group(1))


@unittest.skipIf(WHY_NOT, WHY_NOT)
class TlsOverlayTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.objects = k8s.render("k8s/overlays/tls")
        cls.monitor = k8s.render(f"k8s/overlays/{k8s.TLS_MONITOR}")
        cls.workers = k8s.render("k8s/examples/workers_tls")
        cls.certificates = {
            item["metadata"]["name"]: item["spec"] for item in cls.objects
            if item["kind"] == "Certificate"}
        (cls.config,) = [item["data"]["job.textproto"] for item in cls.objects
                         if item["kind"] == "ConfigMap"]
        cls.pod = only(cls.objects, "StatefulSet")["spec"]["template"]["spec"]
        (cls.container,) = cls.pod["containers"]

    def secret_at(self, pod, path):
        """The Secret whose files are below a path of the one container."""
        (container,) = pod["containers"]
        (mount,) = [mount for mount in container["volumeMounts"]
                    if mount["mountPath"] == path]
        (volume,) = [volume for volume in pod["volumes"]
                     if volume["name"] == mount["name"]]
        # The group reads, which is the process's: nobody else.
        self.assertEqual(volume["secret"]["defaultMode"], 0o440)
        self.assertEqual(pod["securityContext"]["fsGroup"], 65532)
        return volume["secret"]["secretName"]

    def test_certificates_are_what_cert_manager_takes(self):
        issuers = {item["metadata"]["name"]: item["spec"]
                   for item in self.objects if item["kind"] == "Issuer"}
        self.assertEqual(issuers, {
            "agg-self-signed": {"selfSigned": {}},
            "agg-ca": {"ca": {
                "secretName": self.certificates["agg-ca"]["secretName"]}}})
        for name, spec in self.certificates.items():
            self.assertLessEqual(set(spec), CERTIFICATE_FIELDS, name)
            self.assertIn(spec["issuerRef"]["name"], issuers)
            self.assertEqual(spec["issuerRef"]["kind"], "Issuer")
            self.assertLessEqual(set(spec.get("usages", [])), USAGES)
            self.assertEqual(spec["privateKey"]["algorithm"], "ECDSA")
            # A renewal that works is over before the first alert.
            self.assertGreater(hours(spec["renewBefore"]), 14 * 24)
            self.assertGreater(hours(spec["duration"]),
                               2 * hours(spec["renewBefore"]))
            ca = name == "agg-ca"
            self.assertIs(spec.get("isCA", False), ca)
            self.assertEqual(spec["issuerRef"]["name"],
                             "agg-self-signed" if ca else "agg-ca")

    def test_the_servers_certificate_has_each_name_that_is_dialled(self):
        spec = self.certificates["agg-server"]
        self.assertLessEqual({"server auth", "client auth"},
                             set(spec["usages"]))
        hosts = re.findall(r'(?m)^shards: "(.*):\d+"$', self.config)
        self.assertEqual(len(hosts), 2)
        for item in self.objects:
            if item["kind"] == "Service":
                hosts.append(f"{item['metadata']['name']}.agg-server.svc")
        for host in hosts:
            self.assertTrue(
                any(fnmatch.fnmatchcase(host, name)
                    and host.count(".") == name.count(".")
                    for name in spec["dnsNames"]), host)
        self.assertIn("127.0.0.1", spec["ipAddresses"])

    def test_each_certificate_is_one_identity_and_others_none(self):
        sans = dict(re.findall(
            r'name: "(\w+)"\s+san: "(spiffe:[^"]*)"', self.config))
        roles = {"workers": "agg-worker", "admins": "agg-admin",
                 "shards": "agg-server"}
        self.assertEqual(set(sans), set(roles))
        for identity, pattern in sans.items():
            fitting = [name for name, spec in self.certificates.items()
                       if any(fnmatch.fnmatchcase(uri, pattern)
                              for uri in spec.get("uris", []))]
            self.assertEqual(fitting, [roles[identity]])
        for name in ("agg-worker", "agg-admin"):
            self.assertEqual(set(self.certificates[name]["usages"]),
                             {"digital signature", "client auth"})

    def test_the_job_is_neither_insecure_nor_open(self):
        self.assertNotIn("insecure", self.config)
        self.assertNotIn("pages", self.config)

    def test_files_of_the_configuration_are_files_of_secrets(self):
        secret = self.certificates["agg-server"]["secretName"]
        for field, file in (("certificate", "tls.crt"), ("key", "tls.key"),
                            ("client_ca", "ca.crt")):
            (path,) = re.findall(rf'\b{field}: "(.*)"', self.config)
            self.assertEqual(os.path.basename(path), file)
            self.assertEqual(self.secret_at(self.pod, os.path.dirname(path)),
                             secret)
        (path,) = re.findall(r'\btoken_file: "(.*)"', self.config)
        endpoint = self.endpoint()
        credentials = endpoint["authorization"]["credentials"]
        self.assertEqual(self.secret_at(self.pod, os.path.dirname(path)),
                         credentials["name"])
        self.assertEqual(os.path.basename(path), credentials["key"])

    def endpoint(self):
        (endpoint,) = only(self.monitor, "ServiceMonitor")["spec"]["endpoints"]
        return endpoint

    def test_prometheus_comes_with_tls_and_the_token(self):
        endpoint = self.endpoint()
        self.assertEqual(endpoint["scheme"], "https")
        self.assertEqual((endpoint["honorLabels"],
                          endpoint["metricRelabelings"]), k8s.scraping())
        server = self.certificates["agg-server"]
        tls = endpoint["tlsConfig"]
        self.assertNotIn("insecureSkipVerify", tls)
        self.assertEqual(tls["ca"]["secret"],
                         {"name": server["secretName"], "key": "ca.crt"})
        self.assertIn(tls["serverName"], server["dnsNames"])
        selector = only(self.monitor, "ServiceMonitor")["spec"]["selector"]
        everybody = only(k8s.render(f"k8s/overlays/{k8s.MONITORING}"),
                         "ServiceMonitor")["spec"]["selector"]
        labels = only(self.objects, "Service", "agg")["metadata"]["labels"]
        self.assertTrue(matches(selector, labels))
        # The one without a token does not ask, too, and fail.
        self.assertFalse(matches(everybody, labels))
        plain = only(k8s.render("k8s/overlays/cpu"), "Service", "agg")
        self.assertTrue(matches(everybody, plain["metadata"]["labels"]))
        self.assertFalse(matches(selector, plain["metadata"]["labels"]))

    def test_workers_show_their_certificate(self):
        pod = only(self.workers, "Job")["spec"]["template"]["spec"]
        self.assertEqual(self.secret_at(pod, "/etc/agg-tls"),
                         self.certificates["agg-worker"]["secretName"])

    def test_the_environment_names_files_that_are_mounted(self):
        jobs = only(self.workers, "Job")["spec"]["template"]["spec"]
        for container in (self.container, jobs["containers"][0]):
            environment = {item["name"]: item["value"]
                           for item in container["env"]}
            for name, file in (("CA", "ca.crt"), ("CERTIFICATE", "tls.crt"),
                               ("KEY", "tls.key")):
                self.assertEqual(environment["AGG_TLS_" + name],
                                 "/etc/agg-tls/" + file)

    def test_probes_get_an_answer_of_a_server_with_tls(self):
        """The commands of the probes, with a CA of the test's."""
        binaries = pathlib.Path(os.environ.get("AGG_BIN", ".")).resolve()
        names = (k8s.ROOT / "server/rpc/rpc_server.h").read_text()
        (live,) = re.findall(r'kLiveHealth\[\] = "(.*)"', names)
        with tempfile.TemporaryDirectory(prefix="agg_k8s_tls_") as scratch:
            folder = pathlib.Path(scratch)
            subprocess.run([k8s.ROOT / "deploy/test_ca.sh", folder], check=True,
                           capture_output=True)
            for name, file in (("tls.crt", "server.pem"), ("ca.crt", "ca.pem"),
                               ("tls.key", "server.key")):
                (folder / name).symlink_to(file)
            (folder / "prometheus").write_text("prometheus-token-0123\n")
            text = re.sub(r"/etc/agg-(tls|tokens)", scratch, self.config)
            text = re.sub(r'(?m)^shards: .*\n', "", text)
            (folder / "job").write_text(text)
            server = subprocess.Popen(
                [binaries / "server/agg_server", f"--config={folder}/job",
                 "--port=0", f"--port_file={folder}/port"],
                stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                self.ask_probes(folder, binaries, live)
            finally:
                server.terminate()
                server.wait()

    def ask_probes(self, folder, binaries, live):
        deadline = time.monotonic() + LONGEST
        while not (folder / "port").exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        port = (folder / "port").read_text().strip()
        environment = {
            item["name"]: item["value"].replace("/etc/agg-tls", str(folder))
            for item in self.container["env"]}
        environment["AGG_COORDINATOR"] = f"127.0.0.1:{port}"
        for probe, service in (("startupProbe", [live]), ("readinessProbe", []),
                               ("livenessProbe", [live])):
            probe = self.container[probe]
            self.assertEqual({"exec", "grpc", "httpGet"} & set(probe), {"exec"})
            program, *arguments = probe["exec"]["command"]
            self.assertEqual(program, "/opt/agg_server/bin/aggctl")
            self.assertEqual(arguments[-1 - len(service):],
                             ["health", *service])
            (limit,) = re.findall(r"--timeout=(\d+)", " ".join(arguments))
            self.assertLess(int(limit), probe["timeoutSeconds"])
            command = [binaries / "worker_client/tools/aggctl", *arguments]
            while subprocess.run(command, env=environment, check=False,
                                 capture_output=True).returncode != 0:
                self.assertLess(time.monotonic(), deadline)
            # Who shows nothing is not answered.
            refused = subprocess.run(
                command, check=False, capture_output=True, text=True,
                env={"AGG_COORDINATOR": environment["AGG_COORDINATOR"]})
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn("speaks TLS", refused.stderr)


if __name__ == "__main__":
    unittest.main()
