#!/usr/bin/python3
"""Makes the objects that repeat other files of this project:

  overlays/monitoring/prometheus_rule.yaml   the rules of deploy/prometheus
  ../grafana/kustomization.yaml              a ConfigMap per deploy/grafana/*.json
  ../prometheus/README.md, its last part     what to do, by alert

    deploy/k8s/generate.py             writes them
    deploy/k8s/generate.py --check     names what is out of date, exits with 1
"""

import pathlib
import re
import sys

DEPLOY = pathlib.Path(__file__).absolute().parent.parent

RULE_HEADER = """\
# Made by deploy/k8s/generate.py from deploy/prometheus: edit there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: agg
  labels:
    app.kubernetes.io/name: agg-server
    app.kubernetes.io/part-of: agg-server
    # What kube-prometheus-stack selects by, under its usual release name.
    release: prometheus
spec:
  groups:
"""

DASHBOARDS_HEADER = """\
# Made by deploy/k8s/generate.py. Here and not in deploy/k8s, since kustomize
# loads files of its own folder only.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: monitoring
# What Grafana's sidecar looks for.
generatorOptions:
  disableNameSuffixHash: true
  labels:
    grafana_dashboard: "1"
    app.kubernetes.io/part-of: agg-server
  annotations:
    grafana_folder: agg_server
configMapGenerator:
"""


RUNBOOK_MARK = """\
<!-- From here on made by deploy/k8s/generate.py from rules.yml: edit there. -->
"""


def rule_files():
    """The rule files of deploy/prometheus, and none of its other YAML.

    Which jobs are expected each job says by itself: overlays/expected_job.
    """
    return [path for path in sorted((DEPLOY / "prometheus").glob("*.y*ml"))
            if path.name != "expected_jobs.yml"
            and re.search(r"(?m)^groups:\s*$", path.read_text())]


def dashboards():
    return sorted((DEPLOY / "grafana").glob("*.json"))


def rule_groups():
    """The groups of all rule files."""
    import yaml  # python3-yaml; only who changes rules needs it

    return [group for path in rule_files()
            for group in yaml.safe_load(path.read_text())["groups"]]


def prometheus_rule():
    """Every text in literal style: kustomize changes folded ones."""
    import yaml

    class Dumper(yaml.SafeDumper):

        def increase_indent(self, flow=False, indentless=False):
            return super().increase_indent(flow, False)

    Dumper.add_representer(str, lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None))
    groups = yaml.dump(rule_groups(), Dumper=Dumper, sort_keys=False,
                       allow_unicode=True, width=1 << 20)
    return RULE_HEADER + "".join(f"    {line}\n" if line else "\n"
                                 for line in groups.splitlines())


def dashboard_kustomization():
    text = DASHBOARDS_HEADER
    for path in dashboards():
        name = "agg-dashboard-" + path.stem.replace("_", "-")
        text += f"  - name: {name}\n    files:\n      - {path.name}\n"
    return text


def runbook():
    """deploy/prometheus/README.md with a section for each alert."""
    head, mark, _ = (DEPLOY / "prometheus" / "README.md").read_text().partition(
        RUNBOOK_MARK)
    if not mark:
        sys.exit("deploy/prometheus/README.md has no place for the runbook")
    alerts = [rule for group in rule_groups() for rule in group["rules"]
              if "alert" in rule]
    text = head + mark
    for alert in alerts:
        # What Prometheus would put in is about one alert: here, about any.
        about = re.sub(r"{{ \$labels\.(\w+) }}", r"`\1`",
                       alert["annotations"]["description"])
        about = re.sub(r"{{ \$value[^}]*}}", "`value`", about)
        text += (f"\n### {alert['alert']}\n\n{about.strip()}\n\n"
                 f"{alert['annotations']['runbook']}")
    return text


def generated():
    """{path: text} of all that is made."""
    return {
        DEPLOY / "k8s/overlays/monitoring/prometheus_rule.yaml":
            prometheus_rule(),
        DEPLOY / "grafana/kustomization.yaml": dashboard_kustomization(),
        DEPLOY / "prometheus" / "README.md": runbook(),
    }


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: deploy/k8s/generate.py [--check]")
    for what, files in (("rules", rule_files()), ("dashboards", dashboards())):
        if not files:
            sys.exit(f"deploy/k8s/generate.py: there are no {what}")
    stale = [path for path, text in generated().items()
             if not path.exists() or path.read_text() != text]
    for path in stale:
        if sys.argv[1:]:
            print(f"{path} is out of date: deploy/k8s/generate.py makes it")
        else:
            path.write_text(generated()[path])
    sys.exit(1 if stale and sys.argv[1:] else 0)


if __name__ == "__main__":
    main()
