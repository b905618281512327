#!/bin/bash
# Makes a CA for tests, and certificates for a job with mutual TLS.
#
#   deploy/test_ca.sh FOLDER [HOST...]
#
# In FOLDER then, all in PEM:
#   ca.pem, ca.key          the CA
#   server.pem, server.key  of the shards: localhost, 127.0.0.1, ::1, every
#                           HOST (a DNS name or an IP address), and
#                           spiffe://agg/shard/server
#   worker.pem, worker.key  spiffe://agg/worker/worker
#   admin.pem, admin.key    spiffe://agg/admin/admin
#   job.textproto           a job of one shard and one worker on this machine,
#                           where each may do its own (identities)
#   worker.env, admin.env   AGG_TLS_*, as in: env $(cat FOLDER/worker.env) ...
#
# Again in the same FOLDER: new certificates of the same CA, each file replaced
# at once, as a rotation does it. They are valid for 30 days, the CA for ten
# years, and the keys lie there for whoever can read them: nothing for real jobs.
set -euo pipefail

fail() {
  echo "deploy/test_ca.sh: $1" >&2
  exit 1
}

if [[ $# -lt 1 || $1 == -* ]]; then
  sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0" >&2
  exit 2
fi
command -v openssl >/dev/null ||
  fail "openssl is missing; install the package openssl"
reason=$(mkdir -p "$1" 2>&1) ||
  fail "FOLDER is '$1'; allowed: a folder that can be made: ${reason#mkdir: }"
folder=$(realpath "$1")
# The environment files are split at spaces.
[[ $folder != *[[:space:]\"\\]* ]] ||
  fail "FOLDER is '$folder'; allowed: a path without spaces, quotes, backslashes"
shift
umask 077
scratch=$(mktemp -d "$folder/.new.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# quietly COMMAND...: its output only if it fails.
quietly() {
  "$@" >"$scratch/output" 2>&1 || fail "$* failed: $(cat "$scratch/output")"
}

new_key() {
  quietly openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 \
    -out "$scratch/$1.key"
}

# issue NAME USAGE NAMES: a certificate of the CA.
issue() {
  new_key "$1"
  quietly openssl req -new -key "$scratch/$1.key" -subj "/O=agg_server test/CN=$1" \
    -out "$scratch/request"
  printf '%s\n' 'basicConstraints=critical,CA:FALSE' \
    'keyUsage=critical,digitalSignature' "extendedKeyUsage=$2" \
    "subjectAltName=$3" >"$scratch/extensions"
  quietly openssl x509 -req -in "$scratch/request" -CA "$folder/ca.pem" \
    -CAkey "$folder/ca.key" -set_serial "0x$(openssl rand -hex 16)" -days 30 \
    -sha256 -extfile "$scratch/extensions" -out "$scratch/$1.pem"
  mv "$scratch/$1.key" "$scratch/$1.pem" "$folder/"
}

names='DNS:localhost,IP:127.0.0.1,IP:::1'
for host in "$@"; do
  [[ $host =~ ^[A-Za-z0-9_.:*-]+$ ]] ||
    fail "HOST is '$host'; allowed: a DNS name or an IP address, without a port"
  kind=DNS
  if [[ $host == *:* || $host =~ ^[0-9.]+$ ]]; then kind=IP; fi
  names+=",$kind:$host"
done

if [[ ! -e $folder/ca.pem || ! -e $folder/ca.key ]]; then
  new_key ca
  quietly openssl req -x509 -new -key "$scratch/ca.key" -sha256 -days 3650 \
    -subj "/O=agg_server test/CN=agg_server test CA $(openssl rand -hex 4)" \
    -addext 'keyUsage=critical,keyCertSign,cRLSign' -out "$scratch/ca.pem"
  mv "$scratch/ca.key" "$scratch/ca.pem" "$folder/"
fi
issue server serverAuth,clientAuth "$names,URI:spiffe://agg/shard/server"
issue worker clientAuth 'URI:spiffe://agg/worker/worker'
issue admin clientAuth 'URI:spiffe://agg/admin/admin'

if [[ ! -e $folder/job.textproto ]]; then
  cat >"$folder/job.textproto" <<JOB
shards: "127.0.0.1:50051"
workers: 1
learning_rate { rate: 0.1 }
security {
  tls {
    certificate: "$folder/server.pem"
    key: "$folder/server.key"
    client_ca: "$folder/ca.pem"
  }
  identities { name: "workers" san: "spiffe://agg/worker/*" roles: "worker" }
  identities {
    name: "admins"
    san: "spiffe://agg/admin/*"
    roles: "admin"
    roles: "observer"
  }
  identities { name: "shards" san: "spiffe://agg/shard/*" roles: "shard" }
}
JOB
fi
for role in worker admin; do
  printf '%s\n' "AGG_TLS_CA=$folder/ca.pem" \
    "AGG_TLS_CERTIFICATE=$folder/$role.pem" "AGG_TLS_KEY=$folder/$role.key" \
    >"$folder/$role.env"
done
echo "$folder: a CA, certificates of server, worker and admin, job.textproto"
