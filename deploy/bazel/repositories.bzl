"""The repositories that agg_server needs, for its own WORKSPACE and others'."""

load("//deploy/bazel:cuda_configure.bzl", "cuda_configure")
load("//deploy/bazel:system.bzl", "system_library", "system_tools")

# Debian's libraries: name, and a header that shows that it is installed.
_LIBRARIES = {
    "absl": "absl/base/config.h",
    "benchmark": "benchmark/benchmark.h",
    "cli11": "CLI/CLI.hpp",
    "grpc": "grpcpp/grpcpp.h",
    "gtest": "gmock/gmock.h",
    "highway": "hwy/highway.h",
    "httplib": "httplib.h",
    "isal": "isa-l.h",
    "libzip": "zip.h",
    "nlohmann": "nlohmann/json.hpp",
    "openssl": "openssl/ssl.h",
    "prometheus": "prometheus/registry.h",
    "protobuf": "google/protobuf/message.h",
    "zlib": "zlib.h",
}

# What Bazel 4.2.3 itself asks for: folders of this tree, and of Debian.
_OURS = {
    "remote_coverage_tools": "deploy/bazel/coverage_tools",
    "rules_cc": "deploy/bazel/rules_cc",
}
_DEBIANS = {
    "rules_java": "/usr/share/bazel/rules/java",
    "rules_proto": "/usr/share/bazel/rules/proto",
}

def _folder_impl(ctx):
    folder = ctx.path(Label("//:WORKSPACE")).dirname
    for name in ctx.attr.folder.split("/"):
        folder = folder.get_child(name)
    for entry in folder.readdir():
        ctx.symlink(entry, entry.basename)

# A folder of this tree as a repository, wherever this tree is.
_folder = repository_rule(
    implementation = _folder_impl,
    local = True,
    attrs = {"folder": attr.string(mandatory = True)},
)

def agg_server_repositories():
    """Makes all of them; one that the WORKSPACE has already is left alone.

    Nothing is downloaded. A library that is not installed is an error only of
    a build that needs it.
    """
    has = native.existing_rules()
    for name, folder in _OURS.items():
        if name not in has:
            _folder(name = name, folder = folder)
    for name, path in _DEBIANS.items():
        if name not in has:
            native.local_repository(name = name, path = path)
    for name, header in _LIBRARIES.items():
        if name not in has:
            system_library(
                name = name,
                build_file = Label("//deploy/bazel/system:%s.BUILD" % name),
                header = header,
            )
    if "system_tools" not in has:
        # Debian's protoc and grpc_cpp_plugin.
        system_tools(
            name = "system_tools",
            tools = ["grpc_cpp_plugin", "protoc"],
        )
    if "cuda" not in has:
        # Optional: @cuda//:defs.bzl says whether there is one.
        cuda_configure(name = "cuda")
