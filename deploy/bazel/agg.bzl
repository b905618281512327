"""The thin layer over Bazel's C++ rules: house flags and test dependencies."""

load("//deploy/bazel:proto.bzl", _agg_proto_library = "agg_proto_library")

agg_proto_library = _agg_proto_library

# The language standard is in .bazelrc, since generated code needs it, too.
# Contraction is off everywhere: results must not depend on where the compiler
# finds a multiplication beside an addition.
_COPTS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffp-contract=off",
]

_FEATURES = ["layering_check"]  # Clang's; gcc ignores it.

# Of this tree, also where another one calls these macros.
_LIBFUZZER = str(Label("//deploy/bazel:libfuzzer"))

def agg_cc_library(name, copts = [], features = [], **kwargs):
    """A cc_library with the house flags. Takes cc_library's arguments."""
    native.cc_library(
        name = name,
        copts = _COPTS + copts,
        features = _FEATURES + features,
        linkstatic = True,
        **kwargs
    )

def agg_cc_binary(name, copts = [], features = [], **kwargs):
    """A cc_binary with the house flags. Takes cc_binary's arguments."""
    native.cc_binary(
        name = name,
        copts = _COPTS + copts,
        features = _FEATURES + features,
        **kwargs
    )

def agg_cc_test(
        name,
        srcs = None,
        deps = [],
        copts = [],
        features = [],
        size = "small",
        main = True,
        **kwargs):
    """A GoogleTest with the house flags. Takes cc_test's arguments.

    Args:
      name: the target; `srcs` defaults to [name + ".cc"].
      srcs: the sources.
      deps: besides gtest, gmock and gtest_main, which come by themselves.
      copts: besides the house flags.
      features: besides layering_check.
      size: as in cc_test, but small by default.
      main: False for a test that brings its own main().
      **kwargs: as in cc_test. The tag `core` adds the test to the
        ThreadSanitizer cell (no gRPC below it); `no_sanitizer` removes it
        from all sanitizer cells.
    """
    test_deps = ["@gtest//:gmock"]
    if main:
        test_deps.append("@gtest//:gtest_main")
    native.cc_test(
        name = name,
        srcs = srcs or [name + ".cc"],
        copts = _COPTS + copts,
        features = _FEATURES + features,
        linkstatic = True,
        size = size,
        deps = deps + test_deps,
        **kwargs
    )

def agg_fuzz_test(name, corpus, srcs = None, deps = [], tags = [], **kwargs):
    """A fuzz target: `LLVMFuzzerTestOneInput` in srcs, no main().

    An ordinary test that runs the corpus; with --config=fuzz, libFuzzer runs
    it for a while, starting from the corpus.

    Args:
      name: the target; `srcs` defaults to [name + ".cc"].
      corpus: a folder of this package with at least one input.
      srcs: the sources.
      deps: as in cc_test.
      tags: besides `fuzz`.
      **kwargs: as in cc_test, without args and data.
    """
    native.cc_test(
        name = name,
        srcs = srcs or [name + ".cc"],
        copts = _COPTS,
        features = _FEATURES,
        args = [native.package_name() + "/" + corpus],
        data = native.glob([corpus + "/**"]),
        linkopts = select({
            _LIBFUZZER: ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        linkstatic = True,
        tags = tags + ["fuzz"],
        deps = deps + select({
            _LIBFUZZER: [],
            "//conditions:default": [Label("//deploy/bazel:corpus_main")],
        }),
        **kwargs
    )

def agg_py_test(name, data = [], size = "small", tags = [], **kwargs):
    """The unittest cases of `<name>.py`.

    Args:
      name: the target and the module.
      data: what the module imports ("from tests.x import y") and reads.
      size: as in sh_test, but small by default.
      tags: besides no_sanitizer.
      **kwargs: as in sh_test.
    """
    module = "/".join([native.package_name(), name]).replace("/", ".")
    native.sh_test(
        name = name,
        size = size,
        srcs = [Label("//deploy/bazel:run_python_test.sh")],
        args = [module],
        data = data + [name + ".py", Label("//deploy/bazel:python_cases.py")],
        tags = tags + ["no_sanitizer"],
        **kwargs
    )
