"""Renders deploy/k8s with kubectl and checks objects against the Kubernetes
OpenAPI schemas, where the tools are (tests/deploy/k8s_tools.sh gets them).
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

try:
    import yaml
except ImportError:
    yaml = None

ROOT = pathlib.Path(__file__).absolute().parent.parent.parent
PLAIN = ("cpu", "gpu")       # a job each, without TLS
OVERLAYS = (*PLAIN, "tls")
MONITORING = "monitoring"    # once, for all jobs
TLS_MONITOR = "tls_monitor"  # for each job with TLS
EXPECTED_JOB = "expected_job"  # for each job that is to be missed
# In no core schema.
CRD_GROUPS = ("monitoring.coreos.com/v1", "cert-manager.io/v1",
              "jobset.x-k8s.io/v1alpha2")
# The oldest is what deploy/docs/kubernetes.md asks for.
VERSIONS = ("1.29", "1.32", "1.35")


def guide():
    """The text of all pages of deploy/docs."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(
        (ROOT / "deploy/docs").glob("*.md")))


# Reads one object per line; prints the errors of each.
_VALIDATE = """
import json, sys
import kubernetes_validate as kv
for line in sys.stdin:
    try:
        kv.validate(json.loads(line), sys.argv[1], strict=True)
        print(json.dumps(""))
    except kv.ValidationError as error:
        path = ".".join(str(step) for step in error.path)
        print(json.dumps(path + ": " + error.message))
    except kv.SchemaNotFoundError as error:
        print(json.dumps(error.message))
"""


# Reads one JobSet per line; prints what is wrong with each. The models drop what
# they do not know, and add defaults.
_VALIDATE_JOBSET = """
import json, sys
from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import (
    JobsetV1alpha2JobSet)

def dropped(given, kept, path):
    if isinstance(given, dict):
        for key, value in given.items():
            if key not in kept:
                yield path + "." + key
            else:
                yield from dropped(value, kept[key], path + "." + key)
    elif isinstance(given, list):
        for i, value in enumerate(given):
            yield from dropped(value, kept[i], path + "[%d]" % i)

for line in sys.stdin:
    given = json.loads(line)
    try:
        kept = json.loads(JobsetV1alpha2JobSet.from_dict(given).to_json())
        print(json.dumps(" ".join(
            "unknown: " + path for path in dropped(given, kept, "jobset"))))
    except ValueError as error:
        print(json.dumps(str(error)))
"""


def validator_python():
    """The venv's Python that has kubernetes-validate; None without it."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    python = pathlib.Path(cache) / "agg_server_k8s/bin/python"
    if not python.exists():
        return None
    check = subprocess.run(
        [str(python), "-c", "import kubernetes_validate, kubeflow_trainer_api"],
        capture_output=True, check=False)
    return str(python) if check.returncode == 0 else None


def scraping():
    """The metricRelabelings that deploy/prometheus/prometheus.yml has."""
    config = yaml.safe_load(
        (ROOT / "deploy/prometheus/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    return job["honor_labels"], [
        {"".join([word, *map(str.title, words)]): value
         for (word, *words), value in ((key.split("_"), value)
                                       for key, value in step.items())}
        for step in job["metric_relabel_configs"]]


def why_no_render():
    if yaml is None:
        return "needs python3-yaml (deploy/setup.sh --dev)"
    if shutil.which("kubectl") is None:
        return "needs kubectl (deploy/setup.sh --dev)"
    return None


def why_no_schemas():
    if validator_python() is None:
        return "needs the schemas that tests/deploy/k8s_tools.sh gets"
    return why_no_render()


def minor_version():
    """Of kubectl 1.N: N."""
    out = subprocess.run(["kubectl", "version", "--client", "-o", "json"],
                         capture_output=True, check=True).stdout
    return int(re.match(r"\d+", json.loads(out)["clientVersion"]["minor"])[0])


def _downgrade(folder):
    """Writes what the kustomize of kubectl 1.20 calls otherwise: folders are
    `bases`, files of patches `patchesStrategicMerge`."""
    for path in folder.rglob("kustomization.yaml"):
        data = yaml.safe_load(path.read_text())
        resources = data.pop("resources", [])
        data["resources"] = [r for r in resources if r.endswith(".yaml")]
        data["bases"] = [r for r in resources if not r.endswith(".yaml")]
        data["patchesStrategicMerge"] = [
            patch["path"] for patch in data.pop("patches", [])]
        path.write_text(yaml.safe_dump(data))


def render(folder, edit=lambda deploy: None):
    """The objects of a folder of deploy, as `kubectl kustomize` makes them of
    a copy that `edit` may change first."""
    with tempfile.TemporaryDirectory(prefix="agg_k8s_") as scratch:
        deploy = pathlib.Path(scratch) / "deploy"
        for part in ("k8s", "grafana"):
            # Copies of files, not Bazel's links to them.
            shutil.copytree(ROOT / "deploy" / part, deploy / part,
                            ignore=shutil.ignore_patterns("__pycache__"))
        edit(deploy)
        if minor_version() < 21:
            _downgrade(deploy)
        result = subprocess.run(
            ["kubectl", "kustomize", str(deploy / folder)],
            capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise AssertionError(f"{folder}: {result.stderr}")
    return [item for item in yaml.safe_load_all(result.stdout) if item]


def _judge(objects, *program):
    lines = "".join(json.dumps(item) + "\n" for item in objects)
    result = subprocess.run([validator_python(), "-c", *program],
                            input=lines, capture_output=True, text=True,
                            check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def schema_errors(objects, version):
    """One text per object: "" if it is valid, else what is wrong."""
    return _judge(objects, _VALIDATE, version)


def jobset_errors(jobsets):
    """The same for JobSets; the Jobs in them are judged as far as JobSet's own
    models know them (jobs_of, schema_errors: by the schemas)."""
    return _judge(jobsets, _VALIDATE_JOBSET)


def jobs_of(jobset):
    """The Jobs that a JobSet makes."""
    return [{"apiVersion": "batch/v1", "kind": "Job",
             "metadata": {"name": replicated["name"],
                          **replicated["template"].get("metadata", {})},
             "spec": replicated["template"]["spec"]}
            for replicated in jobset["spec"]["replicatedJobs"]]


def is_custom(item):
    return item["apiVersion"] in CRD_GROUPS


def named(item):
    return f"{item['kind']}/{item['metadata']['name']}"


def only(objects, kind, name=None):
    """The one object of a kind (and name)."""
    found = [item for item in objects if item["kind"] == kind
             and (name is None or item["metadata"]["name"] == name)]
    if len(found) != 1:
        raise AssertionError(f"{len(found)} objects {kind}/{name or ''}")
    return found[0]


def matches(selector, labels):
    """Whether a selector of matchLabels and NotIn, or of plain labels, takes
    them."""
    wanted = selector.get("matchLabels", selector)
    for expression in selector.get("matchExpressions", []):
        if expression["operator"] != "NotIn":
            raise AssertionError(f"not known here: {expression}")
        if labels.get(expression["key"]) in expression["values"]:
            return False
    return all(labels.get(key) == value for key, value in wanted.items())
