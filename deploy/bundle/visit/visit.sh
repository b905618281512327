#!/bin/bash
# What a few minutes on a host with a card are for; `deploy/bundle.sh --visit`
# makes the folder in which this lies, with all that it needs.
#
#   visit.sh first | second | PART[:SECONDS]...
#
# first: does it work? facts, conformance, jobs, cuda_kernels, round_device,
# training_small. second: the numbers of what was mended, and the sanitizers.
# A part that takes longer than its SECONDS is killed, and has failed; the exit
# status is 1 if one has. What every part says goes to the folder OUT (default:
# ./visit_out): log.txt, as it happens, the benchmarks' JSON and logs.tgz. Needs
# Python 3, for the trainings with torch, whose wheels' cuBLAS is found.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-./visit_out}
mkdir -p "$out" && out=$(cd "$out" && pwd)
begin=$SECONDS
logs=$(mktemp -d)
work=$(mktemp -d)
exec > >(exec tee "$out/log.txt") 2>&1
tee=$!
# Waits for tee: whoever copies the folder then has all of the log.
trap 'tar -C "$logs" -czf "$out/logs.tgz" .
  rm -rf "$logs" "$work"; echo "== end, $((SECONDS - begin)) s"
  exec >&- 2>&-; wait "$tee"' EXIT

tar -C "$work" -xzf "$here/agg_server_bundle.tar.gz" || exit 1
checks=$work/agg_server_bundle/checks
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir \
  --target "$work/site" "$here"/agg_server-*.whl || exit 1
export PYTHONPATH=$work/site PYTHONUNBUFFERED=1
echo "== $(cat "$work/agg_server_bundle/lib/revision"), $(date -u +%FT%TZ)," \
  "unpacked after $((SECONDS - begin)) s"

# part NAME SECONDS LINES COMMAND...: prints the last LINES of what COMMAND says.
failed=0
part() {
  local name=$1 limit=$2 lines=$3 at=$SECONDS status
  shift 3
  timeout -k 3 "$limit" "$@" >"$logs/$name.log" 2>&1
  status=$?
  echo "== $name: status $status, $((SECONDS - at)) of $limit s"
  # What failed comes first: a log's end need not name it.
  if ((status)); then
    failed=1
    grep -m 12 -E 'Failure|FAILED|error' "$logs/$name.log"
  fi
  tail -n "$lines" "$logs/$name.log" | cut -c 1-400
}

# The conformance suite on the card's own kernels, and its Grams in pairs of
# floats, but for the cases whose many elements take a sanitizer minutes.
sanitized='*/HandKernels:*Gram*/DoubleFloat-*Large*:*Many*:*EveryPattern*'
sanitized+=':*EveryInterval*:*EveryGrouping*:*Huge*'
sanitizer() {
  part "$1" "$2" 6 compute-sanitizer --tool "$1" --error-exitcode 7 \
    "$checks/cuda_conformance_test" --gtest_filter="$sanitized"
}

# run NAME SECONDS: SECONDS may be empty, for the part's own.
run() {
  local limit=$2
  case $1 in
    facts)
      part facts "${limit:-20}" 45 sh -c "nvidia-smi --query-gpu=name,\
driver_version,compute_mode,mig.mode.current,pcie.link.gen.current,\
pcie.link.width.current --format=csv,noheader; uname -r; ulimit -l
        ls -d /dev/nvidia*; command -v zstd ncu compute-sanitizer
        python3 '$here/card_facts.py'"
      ;;
    conformance)
      part conformance "${limit:-90}" 6 "$checks/cuda_conformance_test" \
        --gtest_brief=1
      ;;
    jobs) part jobs "${limit:-60}" 6 "$checks/cuda_jobs_test" --gtest_brief=1 ;;
    cuda_kernels | round_device | round_gpu)
      part "$1" "${limit:-75}" 70 "$checks/$1" --json="$out/$1.json"
      ;;
    smoke)
      part kernels_smoke "${limit:-20}" 4 "$checks/cuda_kernels" --smoke
      part device_smoke "${limit:-30}" 4 "$checks/round_device" --smoke
      ;;
    ncu)
      # The first launches of each: of float32, of the fewest rows.
      local kernel
      for kernel in FewRows Triangle UpdateKernel; do
        part "ncu_$kernel" "${limit:-40}" 70 ncu --clock-control none \
          --section SpeedOfLight --section WarpStateStats --section Occupancy \
          --section MemoryWorkloadAnalysis -k "regex:$kernel" -s 2 -c 1 \
          --kill yes "$checks/cuda_kernels"
      done
      ;;
    training_small)
      part training_small "${limit:-70}" 30 python3 \
        "$here/card_training.py" --small
      ;;
    training)
      part training "${limit:-150}" 30 python3 "$here/card_training.py"
      ;;
    memcheck | racecheck | synccheck | initcheck)
      sanitizer "$1" "${limit:-110}"
      ;;
    *)
      echo "visit.sh: no part named '$1'; allowed: first, second, facts," \
        "conformance, jobs, smoke, cuda_kernels, round_device, round_gpu, ncu," \
        "training, training_small, memcheck, racecheck, synccheck, initcheck"
      return 1
      ;;
  esac
}

case ${1:-} in
  '') sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
  first)
    set -- facts conformance jobs training_small cuda_kernels round_device
    ;;
  second)
    set -- conformance jobs cuda_kernels round_device training ncu memcheck \
      racecheck synccheck initcheck
    ;;
esac
for argument in "$@"; do
  seconds=
  [[ $argument != *:* ]] || seconds=${argument#*:}
  run "${argument%%:*}" "$seconds" || failed=1
done
exit "$failed"
