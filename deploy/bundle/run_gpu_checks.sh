#!/bin/bash
# Checks this host and its GPU; the last line is
# `N passed, N failed[, N skipped]`. Exits with 1 if something failed, or if
# nothing ran on a GPU although there is one. Without one that half is skipped.
#
#   run_gpu_checks.sh [--cpu | --gpu] [--no-bench]
#
# --cpu leaves the GPU's half out; --gpu fails if nothing of it ran.
# CPU: the binaries start, the CPU backend's conformance suite.
# GPU: the conformance suite and the comparison with the CPU; whole jobs on
# several shards; small tests under compute-sanitizer (memcheck, racecheck and
# synccheck); the benchmarks. Cases of a GoogleTest program count one by one. Logs go to
# the folder AGG_LOGS, default ./agg_gpu_checks.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
gpu=1
wanted=0
bench=1
for argument in "$@"; do
  case $argument in
    --cpu) gpu=0 ;;
    --gpu) wanted=1 ;;
    --no-bench) bench=0 ;;
    *)
      sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0" >&2
      exit 2
      ;;
  esac
done
logs=${AGG_LOGS:-./agg_gpu_checks}
mkdir -p "$logs" || exit 1

passed=0
failed=0
skipped=0

skip() {
  skipped=$((skipped + 1))
  echo "skipped  $1: $2"
}

# count LOG PATTERN: lines of LOG that match.
count() {
  grep -c -E "$2" "$1" || true
}

# fail NAME WHY: with the end of its log.
fail() {
  failed=$((failed + 1))
  echo "FAILED   $1: $2"
  [[ ! -e $logs/$1.log ]] || tail -n 15 "$logs/$1.log"
}

# add_cases NAME STATUS: the cases of a GoogleTest program, from its log.
add_cases() {
  local name=$1 status=$2 log=$logs/$1.log ok bad left_out
  ok=$(count "$log" '^\[       OK \]')
  bad=$(count "$log" '^\[  FAILED  \].*\([0-9]+ ms\)$')
  left_out=$(count "$log" '^\[  SKIPPED \].*\([0-9]+ ms\)$')
  if ((left_out)); then
    skipped=$((skipped + left_out))
    echo "skipped  $name: $left_out cases," \
      "$(grep -m 1 -A 1 ': Skipped' "$log" | tail -n 1)"
  fi
  if ((bad)); then
    failed=$((failed + bad - 1))
    fail "$name" "$bad cases, $log"
  elif ((status)); then
    fail "$name" "status $status, $log"
  elif ((ok + left_out == 0)); then
    fail "$name" "no case ran, $log"
  fi
  passed=$((passed + ok))
  ((ok == 0)) || echo "passed   $name: $ok cases"
}

# check NAME COMMAND...: one check; its output goes to a log.
check() {
  local name=$1 log=$logs/$1.log status limit=(timeout 1200)
  shift
  [[ $(type -t "$1") != function ]] || limit=()
  "${limit[@]}" "$@" >"$log" 2>&1
  status=$?
  if grep -q '^\[==========\] Running ' "$log"; then
    add_cases "$name" "$status"
  elif ((status)); then
    fail "$name" "status $status, $log"
  elif grep -q '^SKIPPED: ' "$log"; then
    skip "$name" "$(sed -n 's/^SKIPPED: //p' "$log" | head -n 1)"
  else
    passed=$((passed + 1))
    echo "passed   $name"
  fi
}

have=$(getconf GNU_LIBC_VERSION 2>/dev/null | awk '{ print $2 }')
needed=$(cat "$here/lib/glibc_needed")
if [[ $(printf '%s\n' "$needed" "${have:-0}" | sort -V | head -n 1) != \
  "$needed" ]]; then
  echo "this host has glibc ${have:-unknown}; the bundle needs $needed"
  echo "0 passed, 1 failed"
  exit 1
fi

# starts PROGRAM: it finds its libraries and answers; 127 says that it did not.
starts() {
  timeout 60 "$1" --help
  (($? <= 2))
}
for program in "$here"/bin/*; do
  check "starts_$(basename "$program")" starts "$program"
done
check cpu_conformance "$here/checks/cpu_conformance_test"

# The hand kernels on little data: every kernel, every row count.
small=
for case in GramOfEveryWorkerCount HandWorkedSequences RangesAreIndependent \
  NormsAreThoseOfWhatUpdateApplies CombinesEveryWorkerCountAndDType; do
  small+=":*$case/HandKernels:*$case/DoubleFloat*"
done

# sanitized PROGRAM TOOL FILTER: succeeds if the tests do and the tool says
# that it has found nothing.
sanitized() {
  timeout 1200 "$1" --tool "$2" --error-exitcode 7 \
    "$here/checks/cuda_conformance_test" --gtest_filter="$3" 2>&1 | tee "$logs/$2.now"
  local status=${PIPESTATUS[0]}
  ((status)) && return "$status"
  grep -q -E '(ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards)' \
    "$logs/$2.now"
}

# sanitizer TOOL: small tests under compute-sanitizer.
sanitizer() {
  local tool=$1 program
  program=$(command -v compute-sanitizer ||
    ls "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" 2>/dev/null)
  if [[ -z $program ]]; then
    skip "$tool" "no compute-sanitizer in PATH or CUDA_HOME"
    return
  fi
  # It needs rights that some containers and virtual machines do not give. A
  # program that ran to its end shows that it has them.
  sanitized "$program" "$tool" '*HandWorkedSequences/HandKernels' \
    >"$logs/$tool.try.log"
  if ! grep -q '^\[==========\] .* ran' "$logs/$tool.try.log"; then
    skip "$tool" "compute-sanitizer does not work here ($logs/$tool.try.log)"
    return
  fi
  check "$tool" sanitized "$program" "$tool" "${small#:}"
}

gpu_checks() {
  local name passed_before=$passed failed_before=$failed
  check cuda_conformance "$here/checks/cuda_conformance_test"
  check cuda_jobs "$here/checks/cuda_jobs_test"
  for name in memcheck racecheck synccheck; do
    if grep -q 'no CUDA device' "$logs/cuda_conformance.log"; then
      skip "$name" "no CUDA device"
    else
      sanitizer "$name"
    fi
  done
  if ((bench)); then
    for name in cuda_kernels round_gpu; do
      check "$name" "$here/checks/$name"
      grep -v '^SKIPPED' "$logs/$name.log"
    done
    check round_loopback "$here/checks/round_loopback" --backend=cuda
    grep -v '^SKIPPED' "$logs/round_loopback.log"
  fi
  ((passed == passed_before && failed == failed_before)) || return
  # The driver makes this file where it has a device.
  if ((wanted)) || [[ -e ${AGG_GPU_DEVICE:-/dev/nvidiactl} ]]; then
    fail gpu "none of its checks ran, though there is a GPU or --gpu"
  else
    skip gpu "NO CHECK RAN ON A GPU: there is none here (--gpu: fail then)"
  fi
}

if ((gpu)); then
  if [[ -e $here/checks/cuda_conformance_test ]]; then
    gpu_checks
  else
    skip gpu "this bundle was built without CUDA"
    ((wanted)) && fail gpu "this bundle was built without CUDA"
  fi
fi

((passed + failed == 0)) && failed=1
summary="$passed passed, $failed failed"
((skipped)) && summary="$summary, $skipped skipped"
echo "$summary"
((failed == 0))
