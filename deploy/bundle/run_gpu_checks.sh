#!/bin/bash
# Checks this host and its GPU; the last line is
# `N passed, N failed[, N skipped]`. Exits with 1 if something failed or
# nothing passed.
#
#   run_gpu_checks.sh [--cpu] [--no-bench]
#
# CPU: the binaries start, the CPU backend's conformance suite.
# GPU: the conformance suite and the comparison with the CPU; small tests
# under compute-sanitizer (memcheck and racecheck); the benchmarks. Logs go to
# the folder AGG_LOGS, default ./agg_gpu_checks.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
gpu=1
bench=1
for argument in "$@"; do
  case $argument in
    --cpu) gpu=0 ;;
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

# check NAME COMMAND...: one check; its output goes to a log.
check() {
  local name=$1 log=$logs/$1.log
  shift
  if "$@" >"$log" 2>&1; then
    # A GoogleTest program whose cases were all skipped has shown nothing.
    if grep -q '\[  SKIPPED \]' "$log" && ! grep -q '\[       OK \]' "$log"; then
      skip "$name" "$(grep -m 1 -A 1 ': Skipped' "$log" | tail -n 1)"
      return
    fi
    if grep -q '^SKIPPED: ' "$log"; then
      skip "$name" "$(sed -n 's/^SKIPPED: //p' "$log" | head -n 1)"
      return
    fi
    passed=$((passed + 1))
    echo "passed   $name"
  else
    failed=$((failed + 1))
    echo "FAILED   $name (status $?; $log)"
    tail -n 15 "$log"
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
  "$1" --help
  (($? <= 2))
}
for program in "$here"/bin/*; do
  check "starts_$(basename "$program")" starts "$program"
done
check cpu_conformance "$here/checks/cpu_conformance_test"

# sanitizer TOOL: small tests under compute-sanitizer.
sanitizer() {
  local tool=$1 program
  program=$(command -v compute-sanitizer ||
    ls "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" 2>/dev/null)
  if [[ -z $program ]]; then
    skip "$tool" "no compute-sanitizer in PATH or CUDA_HOME"
    return
  fi
  # It needs rights that some containers and virtual machines do not give.
  if ! "$program" --tool "$tool" --error-exitcode 7 \
    "$here/checks/cuda_conformance_test" \
    --gtest_filter='*HandWorkedSequences/HandKernels' \
    >"$logs/$tool.try.log" 2>&1; then
    if ! grep -q 'ERROR SUMMARY: [1-9]' "$logs/$tool.try.log"; then
      skip "$tool" "compute-sanitizer does not work here ($logs/$tool.try.log)"
      return
    fi
  fi
  local small='*GramOfEveryWorkerCount/HandKernels'
  small+=':*HandWorkedSequences/HandKernels:*RangesAreIndependent/HandKernels'
  small+=':*NormsAreThoseOfWhatUpdateApplies/HandKernels'
  small+=':*CombinesEveryWorkerCountAndDType/HandKernels'
  check "$tool" "$program" --tool "$tool" --error-exitcode 7 \
    "$here/checks/cuda_conformance_test" --gtest_filter="$small"
}

if ((gpu)); then
  check cuda_conformance "$here/checks/cuda_conformance_test"
  if grep -q 'no CUDA device' "$logs/cuda_conformance.log"; then
    skip memcheck "no CUDA device"
    skip racecheck "no CUDA device"
  else
    sanitizer memcheck
    sanitizer racecheck
  fi
  if ((bench)); then
    for program in cuda_kernels round_gpu; do
      check "$program" "$here/checks/$program"
      grep -v '^SKIPPED' "$logs/$program.log"
    done
  fi
fi

((passed + failed == 0)) && failed=1
summary="$passed passed, $failed failed"
((skipped)) && summary="$summary, $skipped skipped"
echo "$summary"
((failed == 0))
