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
