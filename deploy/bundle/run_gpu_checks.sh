#!/bin/bash
# Checks this host and its GPU, and reports; or runs some parts of that, for a
# few minutes on a host with a card, where it lies beside the bundle's archive
# and is named visit.sh (`deploy/bundle.sh --visit`).
#
#   run_gpu_checks.sh [--cpu | --gpu] [--no-bench] [--limit=SECONDS]
#                     [--budget=NAME:SECONDS]...
#   visit.sh first | second | PART[:SECONDS]...
#
# All checks take 8 minutes at most; the last line is
# `N passed, N failed[, N skipped]`. Exits with 1 if something failed, or if
# nothing ran on a GPU although there is one. Without one that half is skipped.
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
#
# Of parts, first asks: does it work? facts, conformance, jobs, training_small,
# cuda_kernels, round_device. second: the numbers of what was mended, and the
# sanitizers. A part that takes longer than its SECONDS is killed, and has
# failed; the exit status is 1 if one has. What every part says goes to the
# folder OUT (default: ./visit_out): log.txt, as it happens, the benchmarks' JSON
# and logs.tgz. Needs Python 3, for the trainings with torch, whose wheels' cuBLAS
# is found.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
checks=$here/checks
archive=$here/agg_server_bundle.tar.gz
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

parse_flags() {
  local argument name seconds
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
}

# Nothing of an earlier run may get into this one's report.
make_logs() {
  logs=${AGG_LOGS:-./agg_gpu_checks}
  json=$logs
  mkdir -p "$logs" || exit 1
  rm -f "$logs"/{checks.tsv,nvidia_smi.csv,gpu_checks.json,gpu_checks.markdown} \
    "$logs"/{cuda_kernels,round_gpu,round_device,round_loopback}.json
}

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

# within COMMAND...: for at most $limit seconds, which is check's. A function has
# to say it of what it starts.
within() {
  if [[ $(type -t "$1") == function ]]; then
    "$@"
  else
    timeout -k "$to_die" "$limit" "$@"
  fi
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
  within "$@" >"$log" 2>&1
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
      # What failed comes first: a log's end need not name it.
      [[ ! -e $log ]] || { grep -m 12 -E 'Failure|FAILED|error' "$log"
        tail -n 15 "$log"; }
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

glibc_is_new_enough() {
  local have needed
  have=$(getconf GNU_LIBC_VERSION 2>/dev/null | awk '{ print $2 }')
  needed=$(cat "$here/lib/glibc_needed")
  if [[ $(printf '%s\n' "$needed" "${have:-0}" | sort -V | head -n 1) != \
    "$needed" ]]; then
    echo "this host has glibc ${have:-unknown}; the bundle needs $needed"
    echo "0 passed, 1 failed"
    return 1
  fi
}

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

# The conformance suite on the card's own kernels, and its Grams in pairs of
# floats, but for the cases whose many elements take a sanitizer minutes.
whole='*/HandKernels:*Gram*/DoubleFloat-*Large*:*Many*:*EveryPattern*'
whole+=':*EveryInterval*:*EveryGrouping*:*Huge*'

find_sanitizer() {
  command -v compute-sanitizer ||
    ls "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" 2>/dev/null
}

# sanitized PROGRAM TOOL FILTER: succeeds if the tests do and the tool says
# that it has found nothing.
sanitized() {
  within "$1" --tool "$2" --error-exitcode 7 \
    "$checks/cuda_conformance_test" --gtest_filter="$3" 2>&1 |
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
  program=$(find_sanitizer)
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
  check "$name" "${budget[$name]}" "$checks/$name" "$@" \
    --json="$json/$name.json"
  [[ ! -e $logs/$name.log ]] || grep -v '^SKIPPED' "$logs/$name.log"
}

gpu_checks() {
  local name
  for name in cuda_conformance cuda_jobs; do
    check "$name" "${budget[$name]}" "$checks/${name}_test"
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
  timeout -k "$to_die" 10 "$checks/gpu_report" --logs="$logs" \
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

all_checks() {
  local program has_gpu_half=0
  glibc_is_new_enough || return
  for program in "$here"/bin/*; do
    check "starts_$(basename "$program")" "${budget[starts]}" starts "$program"
  done
  if ((gpu)); then
    if [[ -e $checks/cuda_conformance_test ]]; then
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
    "$checks/cpu_conformance_test"
  ((has_gpu_half)) && sanitizers
  write_report

  ((passed + failed == 0)) && failed=1
  local summary="$passed passed, $failed failed"
  ((skipped)) && summary="$summary, $skipped skipped"
  echo "$summary"
  ((failed == 0))
}

# --- Parts ----------------------------------------------------------------------

# What the visit's scripts need, in a folder that goes when the visit ends.
begin_visit() {
  out=${OUT:-./visit_out}
  mkdir -p "$out" && out=$(cd "$out" && pwd)
  json=$out
  logs=$(mktemp -d)
  work=$(mktemp -d)
  exec > >(exec tee "$out/log.txt") 2>&1
  tee=$!
  # Waits for tee: whoever copies the folder then has all of the log.
  trap 'tar -C "$logs" -czf "$out/logs.tgz" .
    rm -rf "$logs" "$work"; echo "== end, $SECONDS s"
    exec >&- 2>&-; wait "$tee"' EXIT
  tar -C "$work" -xzf "$archive" || exit 1
  checks=$work/agg_server_bundle/checks
  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir \
    --target "$work/site" "$here"/agg_server-*.whl || exit 1
  export PYTHONPATH=$work/site PYTHONUNBUFFERED=1
  echo "== $(cat "$work/agg_server_bundle/lib/revision"), $(date -u +%FT%TZ)," \
    "unpacked after $SECONDS s"
}

# shown LINES NAME SECONDS COMMAND...: a check, and the last LINES of its log.
shown() {
  local lines=$1
  shift
  check "$@"
  tail -n "$lines" "$logs/$1.log" | cut -c 1-400
}

# run_part NAME SECONDS: SECONDS may be empty, for the part's own.
run_part() {
  local seconds=$2 kernel
  case $1 in
    facts)
      shown 45 facts "${seconds:-20}" sh -c "nvidia-smi --query-gpu=name,\
driver_version,compute_mode,mig.mode.current,pcie.link.gen.current,\
pcie.link.width.current --format=csv,noheader; uname -r; ulimit -l
        ls -d /dev/nvidia*; command -v zstd ncu compute-sanitizer
        python3 '$here/card_facts.py'"
      ;;
    conformance | jobs)
      shown 6 "$1" "${seconds:-${budget[cuda_$1]}}" "$checks/cuda_$1_test"
      ;;
    cuda_kernels | round_device | round_gpu)
      budget[$1]=${seconds:-75}
      benchmark "$1"
      ;;
    smoke)
      shown 4 kernels_smoke "${seconds:-20}" "$checks/cuda_kernels" --smoke
      shown 4 device_smoke "${seconds:-30}" "$checks/round_device" --smoke
      ;;
    ncu)
      # The first launches of each: of float32, of the fewest rows.
      for kernel in FewRows Triangle UpdateKernel; do
        shown 70 "ncu_$kernel" "${seconds:-40}" ncu --clock-control none \
          --section SpeedOfLight --section WarpStateStats --section Occupancy \
          --section MemoryWorkloadAnalysis -k "regex:$kernel" -s 2 -c 1 \
          --kill yes "$checks/cuda_kernels"
      done
      ;;
    training_small)
      shown 30 "$1" "${seconds:-70}" python3 "$here/card_training.py" --small
      ;;
    training)
      shown 30 "$1" "${seconds:-150}" python3 "$here/card_training.py"
      ;;
    memcheck | racecheck | synccheck | initcheck)
      shown 6 "$1" "${seconds:-110}" sanitized "$(find_sanitizer)" "$1" "$whole"
      ;;
    *)
      echo "visit.sh: no part named '$1'; allowed: first, second, facts," \
        "conformance, jobs, smoke, cuda_kernels, round_device, round_gpu, ncu," \
        "training, training_small, memcheck, racecheck, synccheck, initcheck"
      failed=$((failed + 1))
      ;;
  esac
}

visit() {
  local argument seconds
  case ${1:-} in
    '') usage ;;
    first)
      set -- facts conformance jobs training_small cuda_kernels round_device
      ;;
    second)
      set -- conformance jobs cuda_kernels round_device training ncu memcheck \
        racecheck synccheck initcheck
      ;;
  esac
  begin_visit
  limit_of_all=99999 # each part has its own
  for argument in "$@"; do
    seconds=
    [[ $argument != *:* ]] || seconds=${argument#*:}
    run_part "${argument%%:*}" "$seconds"
  done
  exit $((failed > 0))
}

if [[ -e $archive ]]; then
  visit "$@"
else
  parse_flags "$@"
  make_logs
  all_checks
fi
