#!/bin/bash
# Checks this host and its GPU, in 8 minutes at most; the last line is
# `N passed, N failed[, N skipped]`. Exits with 1 if something failed, or if
# nothing ran on a GPU although there is one. Without one that half is skipped.
#
#   run_gpu_checks.sh [--cpu | --gpu] [--no-bench] [--limit=SECONDS]
#                     [--budget=NAME:SECONDS]...
#
# --cpu leaves the GPU's half out; --gpu fails if nothing of it ran. In order:
# the binaries start; GPU: the conformance suite and the comparison with the
# CPU, whole jobs on several shards, the benchmarks; the CPU backend's
# conformance suite; with what time is left, small tests under
# compute-sanitizer (memcheck, racecheck, synccheck, initcheck), where it is
# installed.
#
# --limit: of everything (480). Each part has a budget of its own, which
# --budget changes. A part that overruns it is killed and has failed; one that
# does not fit any more is skipped, and says so.
#
# Cases of a GoogleTest program count one by one. Logs go to the folder
# AGG_LOGS, default ./agg_gpu_checks, and so do gpu_checks.json and
# gpu_checks.markdown: all of it in one file each (the README has their form).
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
gpu=1
wanted=0
bench=1
limit_of_all=480
# Seconds; of `starts` for each program, of `sanitizer` at least for each tool.
declare -A budget=([starts]=5 [cuda_conformance]=105 [cuda_jobs]=75
  [cuda_kernels]=70 [round_gpu]=45 [round_device]=55 [round_loopback]=40
  [cpu_conformance]=35 [sanitizer]=20)
readonly to_die=3     # from SIGTERM to SIGKILL
readonly to_report=16 # what is kept for the report and for who dies late
usage() {
  sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0" >&2
  exit 2
}
for argument in "$@"; do
  case $argument in
    --cpu) gpu=0 ;;
    --gpu) wanted=1 ;;
    --no-bench) bench=0 ;;
    --limit=*) limit_of_all=${argument#*=} ;;
    --budget=*:*)
      name=${argument#*=}
      [[ -n ${budget[${name%:*}]-} ]] || usage
      budget[${name%:*}]=${name#*:}
      ;;
    *) usage ;;
  esac
done
for seconds in "$limit_of_all" "${budget[@]}"; do
  [[ $seconds =~ ^[1-9][0-9]{0,4}$ ]] || usage
done
logs=${AGG_LOGS:-./agg_gpu_checks}
mkdir -p "$logs" || exit 1
# Nothing of an earlier run may get into this one's report.
rm -f "$logs"/{checks.tsv,nvidia_smi.csv,gpu_checks.json,gpu_checks.markdown} \
  "$logs"/{cuda_kernels,round_gpu,round_device,round_loopback}.json

ran=0 # checks that found what they need
passed=0
failed=0
skipped=0

# Seconds since the host has started: a clock that nobody sets.
now() {
  local seconds
  read -r seconds _ <"${AGG_UPTIME:-/proc/uptime}" # another one in tests
  echo "${seconds%.*}"
}
begin_of_all=$(now)

# What the parts that are left may take together.
left() {
  echo $((limit_of_all - to_report - $(now) + begin_of_all))
}

# record NAME VERDICT SECONDS LIMIT PASSED FAILED SKIPPED REASON: for the
# report.
record() {
  local reason=${8//[$'\t\n']/ }
  printf '%s\t' "${@:1:7}" >>"$logs/checks.tsv"
  printf '%s\n' "$reason" >>"$logs/checks.tsv"
}

skip() {
  skipped=$((skipped + 1))
  echo "skipped  $1: $2"
  record "$1" skipped 0 0 0 0 0 "$2"
}

# fits NAME SECONDS: whether there is the time; if not, NAME is skipped.
fits() {
  local seconds
  seconds=$(left)
  ((seconds >= $2)) && return
  skip "$1" "its $2 s do not fit into the $((seconds > 0 ? seconds : 0)) s \
that are left of --limit=$limit_of_all"
  return 1
}

# count LOG PATTERN: lines of LOG that match.
count() {
  grep -c -E "$2" "$1" || true
}

# within COMMAND...: for at most $limit seconds, which is check's.
within() {
  timeout -k "$to_die" "$limit" "$@"
}

# Whether a sanitizer's log has more than its first and last words.
has_findings() {
  awk '/^=========/ && !/COMPUTE-SANITIZER|SUMMARY: 0|terminat/ { found = 1 }
    END { exit !found }' "$1"
}

# check NAME SECONDS COMMAND...: one check; its output goes to a log. With
# rest=1, the seconds are what was left, and to need more is no failure.
check() {
  local name=$1 limit=$2 log=$logs/$1.log why='' verdict=passed detail=''
  local begin seconds status ok=0 bad=0 left_out=0 is_test=0
  shift 2
  rm -f "$log"
  fits "$name" "$limit" || return
  begin=$(now)
  if [[ $(type -t "$1") == function ]]; then "$@"; else within "$@"; fi \
    >"$log" 2>&1
  status=$?
  seconds=$(($(now) - begin))
  if grep -q '^\[==========\] Running ' "$log"; then
    is_test=1
    ok=$(count "$log" '^\[       OK \]')
    bad=$(count "$log" '^\[  FAILED  \].*\([0-9]+ ms\)$')
    left_out=$(count "$log" '^\[  SKIPPED \].*\([0-9]+ ms\)$')
  fi
  # The verdict, and why it is none better.
  if ((status == 124 || (status == 137 && seconds >= limit))); then
    verdict=failed why="killed at its limit of $limit s, $log"
    if ((${rest:-0} && bad == 0)) && ! has_findings "$log"; then
      verdict=skipped
      why="cut off after $limit s, which were left: $ok cases had passed"
    fi
  elif ((bad)); then
    verdict=failed why="$bad cases, $log"
  elif ((status)); then
    verdict=failed why="status $status, $log"
  elif ((is_test && ok == 0)); then
    verdict=failed why="no case ran, $log"
    ((left_out)) && verdict=skipped why="$left_out cases, \
$(grep -m 1 -A 1 ': Skipped' "$log" | tail -n 1)"
  elif grep -q '^SKIPPED: ' "$log"; then
    verdict=skipped why=$(sed -n 's/^SKIPPED: //p' "$log" | head -n 1)
  elif ((left_out)); then
    why="$left_out cases were skipped, \
$(grep -m 1 -A 1 ': Skipped' "$log" | tail -n 1)"
  fi
  # Some cases of the GPU's programs need no GPU.
  [[ $verdict == skipped ]] || grep -q 'no CUDA device' "$log" ||
    ran=$((ran + 1))
  report_check
  record "$name" "$verdict" "$seconds" "$limit" "$ok" "$bad" "$left_out" "$why"
}

# Prints and counts what `check` has in its variables.
report_check() {
  local failures=$bad
  ((is_test)) && detail=": $ok cases"
  case $verdict in
    passed)
      ((is_test)) && passed=$((passed + ok)) || passed=$((passed + 1))
      ;;
    failed)
      passed=$((passed + ok))
      # Killed: besides the cases that have failed.
      [[ $why == killed* || $bad == 0 ]] && failures=$((bad + 1))
      failed=$((failed + failures))
      echo "FAILED   $name: $why"
      [[ ! -e $log ]] || tail -n 15 "$log"
      ;;
    skipped)
      # Its cases that were skipped count one by one, too.
      ((left_out)) || skipped=$((skipped + 1))
      echo "skipped  $name: $why"
      ;;
  esac
  skipped=$((skipped + left_out))
  if ((left_out)) && [[ $verdict != skipped ]]; then
    echo "skipped  $name: $left_out cases," \
      "$(grep -m 1 -A 1 ': Skipped' "$log" | tail -n 1)"
  fi
  if [[ $verdict == passed ]] || { [[ $verdict == failed ]] && ((ok)); }; then
    echo "passed   $name$detail, $seconds s"
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

# starts PROGRAM: it finds its libraries and answers; 127 says that it did not,
# 124 and 137 that it was killed.
starts() {
  within "$1" --help
  local status=$?
  ((status <= 2)) || return "$status"
}

# The hand kernels on little data: every kernel, every row count.
small=
for case in GramOfEveryWorkerCount HandWorkedSequences RangesAreIndependent \
  NormsAreThoseOfWhatUpdateApplies CombinesEveryWorkerCountAndDType; do
  small+=":*$case/HandKernels:*$case/DoubleFloat*"
done

# sanitized PROGRAM TOOL FILTER: succeeds if the tests do and the tool says
# that it has found nothing.
sanitized() {
  within "$1" --tool "$2" --error-exitcode 7 \
    "$here/checks/cuda_conformance_test" --gtest_filter="$3" 2>&1 |
    tee "$logs/$2.now"
  local status=${PIPESTATUS[0]}
  ((status)) && return "$status"
  grep -q -E '(ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards)' \
    "$logs/$2.now"
}

# why_no_sanitizer PROGRAM: "" where it works. It needs rights that some
# containers and virtual machines do not give. A program that ran to its end
# shows that it has them.
why_no_sanitizer() {
  local log=$logs/sanitizer.try.log limit=${budget[sanitizer]}
  if grep -q 'no CUDA device' "$logs/cuda_conformance.log" 2>/dev/null; then
    echo "no CUDA device"
  elif [[ -z $1 ]]; then
    echo "no compute-sanitizer in PATH or CUDA_HOME"
  elif (($(left) >= limit)); then
    sanitized "$1" memcheck '*HandWorkedSequences/HandKernels' >"$log"
    grep -q '^\[==========\] .* ran' "$log" ||
      echo "compute-sanitizer does not work here ($log)"
  fi
}

# Small tests under compute-sanitizer; the tools share the time that is left.
sanitizers() {
  local tools=(memcheck racecheck synccheck initcheck) program why share rest=1
  program=$(command -v compute-sanitizer ||
    ls "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" 2>/dev/null)
  why=$(why_no_sanitizer "$program")
  while ((${#tools[@]})); do
    share=$(($(left) / ${#tools[@]}))
    if [[ -n $why ]]; then
      skip "${tools[0]}" "$why"
    else
      check "${tools[0]}" \
        $((share < budget[sanitizer] ? budget[sanitizer] : share)) \
        sanitized "$program" "${tools[0]}" "${small#:}"
    fi
    tools=("${tools[@]:1}")
  done
}

# What nvidia-smi says of the cards, for the report.
ask_nvidia_smi() {
  local fields=name,driver_version,pci.bus_id,memory.total,ecc.mode.current
  fields+=,mig.mode.current,pcie.link.gen.max,pcie.link.width.max
  fields+=,pcie.link.gen.current,pcie.link.width.current,clocks.max.sm
  fields+=,clocks.max.memory,clocks.current.sm,clocks.current.memory,power.limit
  command -v nvidia-smi >/dev/null || return
  timeout -k "$to_die" 10 nvidia-smi --query-gpu="$fields" --format=csv \
    >"$logs/nvidia_smi.csv" 2>&1
}

benchmark() {
  local name=$1
  shift
  check "$name" "${budget[$name]}" "$here/checks/$name" "$@" \
    --json="$logs/$name.json"
  [[ ! -e $logs/$name.log ]] || grep -v '^SKIPPED' "$logs/$name.log"
}

gpu_checks() {
  local name
  for name in cuda_conformance cuda_jobs; do
    check "$name" "${budget[$name]}" "$here/checks/${name}_test"
  done
  ((bench)) || return
  benchmark cuda_kernels
  benchmark round_gpu
  benchmark round_device
  benchmark round_loopback --backend=cuda
}

# The driver makes this file where it has a device.
gpu_has_run() {
  ((ran > ran_before)) && return
  if ((wanted)) || [[ -e ${AGG_GPU_DEVICE:-/dev/nvidiactl} ]]; then
    failed=$((failed + 1))
    echo "FAILED   gpu: none of its checks ran, though there is a GPU or --gpu"
    record gpu failed 0 0 0 0 0 "none of its checks ran"
  else
    skip gpu "NO CHECK RAN ON A GPU: there is none here (--gpu: fail then)"
  fi
}

write_report() {
  timeout -k "$to_die" 10 "$here/checks/gpu_report" --logs="$logs" \
    --revision="$(cat "$here/lib/revision")" --date="$(date -u +%FT%TZ)" \
    --seconds="$(($(now) - begin_of_all))" --limit="$limit_of_all" \
    >"$logs/gpu_report.log" 2>&1
  local status=$?
  if ((status)); then
    failed=$((failed + 1))
    echo "FAILED   gpu_report: status $status, $logs/gpu_report.log"
    tail -n 15 "$logs/gpu_report.log"
  else
    echo "report   $logs/gpu_checks.json, $logs/gpu_checks.markdown"
  fi
}

for program in "$here"/bin/*; do
  check "starts_$(basename "$program")" "${budget[starts]}" starts "$program"
done
has_gpu_half=0
if ((gpu)); then
  if [[ -e $here/checks/cuda_conformance_test ]]; then
    has_gpu_half=1
  else
    skip gpu "this bundle was built without CUDA"
    if ((wanted)); then
      failed=$((failed + 1))
      echo "FAILED   gpu: it has no checks, though there is --gpu"
    fi
  fi
fi
((has_gpu_half)) && ask_nvidia_smi
ran_before=$ran
if ((has_gpu_half)); then
  gpu_checks
  gpu_has_run
fi
check cpu_conformance "${budget[cpu_conformance]}" \
  "$here/checks/cpu_conformance_test"
((has_gpu_half)) && sanitizers
write_report

((passed + failed == 0)) && failed=1
summary="$passed passed, $failed failed"
((skipped)) && summary="$summary, $skipped skipped"
echo "$summary"
((failed == 0))
