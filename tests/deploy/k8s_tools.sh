#!/bin/sh
# Gets what the tests of deploy/k8s and deploy/image need beside deploy/setup.sh
# --dev: the PyPI packages kubernetes-validate (Kubernetes' schemas),
# kubeflow-trainer-api (JobSet's) and spdx-tools, in a virtual environment in the
# user's cache. Silent when it is there; exits with 1 when it cannot be had.
set -eu

venv=${XDG_CACHE_HOME:-$HOME/.cache}/agg_server_k8s
"$venv/bin/python" -c 'import kubernetes_validate, kubeflow_trainer_api
import spdx_tools' 2>/dev/null &&
  exit 0
set -- kubernetes-validate kubeflow-trainer-api spdx-tools
echo "k8s_tools.sh: installing $* into $venv" >&2
/usr/bin/python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
  "$@"
