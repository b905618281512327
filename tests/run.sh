#!/bin/bash
# Builds and tests; the last line is `N passed, N failed[, N skipped]`.
#
#   tests/run.sh              gcc at -c opt: build everything, run every test
#   tests/run.sh --all        all cells
#   tests/run.sh --cell=NAME  one cell; may be repeated
#   tests/run.sh --cell=fuzz --seconds=N
#                             N s for each fuzz target in place of 20, one after
#                             the other, and the table of tests/fuzz/README.md
#
# Cells:
#   gcc        as above
#   clang      everything builds with clang, layering_check and -Wthread-safety
#   asan       all tests under ASan and UBSan
#   asan_core  the same for the tests tagged `core`
#   tsan       the tests tagged `core` under ThreadSanitizer
#   fuzz       20 s of libFuzzer for each fuzz target
#   layers     no path from the core to gRPC, protobuf or Prometheus
#   format     clang-format
#   lint       tests/lint/lint.py
#   docs       deploy/docs.sh: the site builds without a warning
#   k8s        the deployment's tests, with the tools that they need
#   foreign    a Python client of other origin against agg_server (from PyPI it
#              takes gRPC, once)
#   drill      bad things done to real jobs, and who is told by a real Prometheus
#              and Alertmanager (tests/e2e/drill.py)
#   python     the Python package with PyTorch (from PyPI it takes PyTorch, once),
#              and tiny runs of the papers' experiments
#   sdk        the client in a Bazel workspace of a user's, the Debian packages in
#              a fresh Debian and their service under its systemd (from Debian it
#              takes one, once; as root)
#   frameworks the package with trainers, JAX, Ray, torchft, TensorFlow and other
#              mallocs (from PyPI, once)
#   tidy       clang-tidy (slow; not part of --all)
#
# Installs missing packages first (deploy/setup.sh). Exits with 1 unless
# something ran and nothing failed. Needs no terminal and no home folder.
# AGG_OUTPUT_BASE names a Bazel output base of one's own.
set -uo pipefail

readonly all_cells="gcc clang asan tsan fuzz layers format lint docs k8s foreign python frameworks sdk drill"
cells=
seconds=
for argument in "$@"; do
  case $argument in
    --seconds=[1-9]*) seconds=${argument#--seconds=} ;;
    --all) cells="$cells $all_cells" ;;
    --cell=gcc | --cell=clang | --cell=asan | --cell=asan_core | \
      --cell=tsan | --cell=fuzz | --cell=layers | --cell=format | --cell=lint | --cell=docs | --cell=k8s | --cell=foreign | \
      --cell=python | --cell=frameworks | --cell=sdk | --cell=drill | --cell=tidy)
      cells="$cells ${argument#--cell=}"
      ;;
    *)
      sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0" >&2
      exit 2
      ;;
  esac
done
cells=${cells:-gcc}
if [[ -n $seconds && ! ($seconds =~ ^[0-9]+$ && $cells =~ fuzz) ]]; then
  echo "--seconds is $seconds; allowed: a number, with --cell=fuzz" >&2
  exit 2
fi

cd "$(dirname "$0")/.." || exit 1
exec </dev/null
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

# Bazel and its cache want a home folder.
if [[ -z ${HOME:-} || ! -w $HOME ]]; then
  HOME=${TMPDIR:-/tmp}/agg_server_home_$(id -u)
  export HOME
  mkdir -p "$HOME" || exit 1
fi

# Bazel takes its links for packages if they come from another output base
# (another home folder, say). It makes them again.
find . -maxdepth 1 -type l -name 'bazel-*' -delete

passed=0
failed=0
skipped=0

# add LINE: adds the counts of "N passed, N failed[, N skipped]".
add() {
  if [[ $1 =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)?$ ]]
  then
    passed=$((passed + BASH_REMATCH[1]))
    failed=$((failed + BASH_REMATCH[2]))
    skipped=$((skipped + ${BASH_REMATCH[4]:-0}))
  else
    echo "FAILED  no counts in: $1"
    failed=$((failed + 1))
  fi
}

# report CELL LINE: prints and adds the counts of a cell.
report() {
  echo "== $1: $2"
  add "$2"
}

# report_status CELL STATUS: a cell that is one case.
report_status() {
  if [[ $2 == 0 ]]; then
    report "$1" "1 passed, 0 failed"
  else
    echo "FAILED  $1"
    report "$1" "0 passed, 1 failed"
  fi
}

run_bazel() {
  local bazel=/usr/bin/bazel  # Debian's, not one that downloads Bazel.
  [[ -x $bazel ]] || bazel=bazel
  local startup=() options=(--noshow_progress)
  [[ $1 == info ]] || options+=(--keep_going)
  if [[ -n ${AGG_OUTPUT_BASE:-} ]]; then
    startup=("--output_base=$AGG_OUTPUT_BASE")
    [[ $1 == query || $1 == info ]] ||
      options+=("--symlink_prefix=$AGG_OUTPUT_BASE.links/")
  fi
  local command=$1
  shift
  "$bazel" "${startup[@]}" "$command" "${options[@]}" "$@" 2>&1
}

# bazel_tests CELL OPTION...: runs tests and counts their cases.
bazel_tests() {
  local cell=$1 events="$scratch/$1.json" status
  shift
  run_bazel test --build_event_json_file="$events" "$@" //...
  status=$?
  /usr/bin/python3 tests/bazel_results.py "$events" "$status" \
    >"$scratch/counts"
  sed '$d' "$scratch/counts"
  report "$cell" "$(tail -n 1 "$scratch/counts")"
}

# Prints paths that visibility, which judges single steps, lets pass.
forbidden_paths() {
  local core="//kernels/... + //server/base/... + //server/combine/..."
  core="$core + //server/ingest/... + //server/params/... + //server/round/..."
  core="$core + //server/coordinator/... + //server/shard/..."
  run_bazel query --noimplicit_deps --output=label "
    filter('^@(grpc|protobuf|prometheus)//', deps($core)) +
    filter('^@(grpc|protobuf)//', deps(//server/metrics/...))
  " >"$scratch/paths"
  local status=$?
  grep -E '^(@|ERROR)' "$scratch/paths" && return 1
  return $status
}

# The folder of what the gcc cell has built.
gcc_bin() {
  run_bazel info --config=gcc -c opt bazel-bin | tail -n 1
}

# report_suite CELL STATUS: a suite that has written to $scratch/CELL.
report_suite() {
  if [[ -s $scratch/$1 ]]; then
    sed '$d' "$scratch/$1" | grep -v ' \.\.\. ok$'
    report "$1" "$(tail -n 1 "$scratch/$1")"
  else
    report_status "$1" "$2"
  fi
}

tracked_cpp() {
  git -c safe.directory='*' ls-files -z '*.h' '*.cc' '*.cu' '*.cuh'
}

run_cell() {
  local status
  echo "== $1"
  case $1 in
    gcc) bazel_tests gcc --config=gcc -c opt --test_tag_filters=-manual ;;
    clang)
      run_bazel build --config=clang -c opt //...
      report_status clang $?
      ;;
    asan) bazel_tests asan --config=asan --build_tests_only ;;
    asan_core)
      bazel_tests asan_core --config=asan --build_tests_only \
        --test_tag_filters=core,-manual,-no_sanitizer
      ;;
    tsan) bazel_tests tsan --config=tsan ;;
    fuzz)
      local long=()
      if [[ -n $seconds ]]; then
        long=(--test_arg="-max_total_time=$seconds" --nocache_test_results
          --test_timeout=$((seconds + 300)) --local_test_jobs=1)
      fi
      bazel_tests fuzz --config=fuzz "${long[@]}"
      [[ -z $seconds ]] || /usr/bin/python3 tests/fuzz/fuzz_table.py \
        "$(run_bazel info --config=fuzz bazel-testlogs | tail -n 1)"
      ;;
    layers)
      forbidden_paths
      report_status layers $?
      ;;
    format)
      tracked_cpp | xargs -0r clang-format --dry-run -Werror 2>"$scratch/format"
      status=$?
      sed -n 's/^\([^ :]*\):[0-9:]* error:.*/mend with clang-format -i \1/p' \
        "$scratch/format" | sort -u
      report_status format $status
      ;;
    lint)
      /usr/bin/python3 tests/lint/lint.py >"$scratch/counts" 2>&1
      sed '$d' "$scratch/counts"
      report lint "$(tail -n 1 "$scratch/counts")"
      ;;
    docs)
      deploy/docs.sh "$scratch/site" >"$scratch/docs" 2>&1
      status=$?
      [[ $status == 0 ]] || cat "$scratch/docs"
      report_status docs $status
      ;;
    k8s)
      # Else the tests skip what needs it, and say so.
      tests/deploy/k8s_tools.sh || true
      # A skip must not be remembered.
      bazel_tests k8s --config=gcc -c opt --build_tests_only \
        --test_tag_filters=k8s --nocache_test_results
      ;;
    foreign)
      run_bazel build --config=gcc -c opt //server:agg_server \
        //worker_client/c:libagg.so &&
        tests/foreign/run.sh "$(gcc_bin)/server/agg_server" >"$scratch/foreign"
      report_suite foreign $?
      ;;
    drill)
      run_bazel build --config=gcc -c opt //server:agg_server \
        //tests/e2e:hanging_folder.so //worker_client/c:libagg.so \
        //worker_client/tools:aggctl &&
        /usr/bin/python3 -B tests/e2e/drill.py --bin="$(gcc_bin)" \
          >"$scratch/drill"
      report_suite drill $?
      ;;
    python)
      run_bazel build --config=gcc -c opt //server:agg_server \
        //server/tools:agg_combine //server/tools:agg_report \
        //worker_client/c:libagg.so //worker_client/tools:agg_pull \
        //worker_client/tools:aggctl &&
        tests/python/run.sh "$(gcc_bin)" >"$scratch/python"
      report_suite python $?
      ;;
    sdk)
      run_bazel build --config=gcc -c opt //deploy/deb:deb \
        //worker_client/examples:minimal_worker &&
        AGG_BIN=$(gcc_bin) AGG_LONGEST_TEST=14400 PYTHONPATH=. \
          /usr/bin/python3 -B tests/foreign/runner.py \
          tests.deploy.sdk_outside_test tests.deploy.deb_service_test \
          >"$scratch/sdk"
      report_suite sdk $?
      ;;
    frameworks)
      run_bazel build --config=gcc -c opt //server:agg_server \
        //worker_client/c:libagg.so &&
        tests/python/run.sh --frameworks "$(gcc_bin)" >"$scratch/frameworks"
      report_suite frameworks $?
      ;;
    tidy)
      # Generated headers must be there.
      run_bazel build //... &&
        BAZEL_BIN=$(run_bazel info bazel-bin | tail -n 1) &&
        export BAZEL_BIN &&
        git -c safe.directory='*' ls-files -z '*.cc' |
        xargs -0r -n 4 -P "$(nproc)" tests/lint/clang_tidy.sh
      report_status tidy $?
      ;;
  esac
}

setup_options=()
[[ $cells =~ (clang|fuzz|format|lint|docs|k8s|frameworks|sdk|tidy) ]] && setup_options=(--dev)
# What a test would be skipped without.
[[ $cells =~ gcc|k8s|drill|sdk ]] && setup_options+=(--monitoring)
[[ $cells =~ python ]] && setup_options+=(--papers)
if deploy/setup.sh "${setup_options[@]}"; then
  for cell in $cells; do
    run_cell "$cell"
  done
else
  report_status setup 1
fi

# Nothing passed is a failure, too.
[[ $((passed + failed)) == 0 ]] && failed=1
summary="$passed passed, $failed failed"
[[ $skipped != 0 ]] && summary="$summary, $skipped skipped"
echo "$summary"
[[ $failed == 0 ]]
