"""CUDA kernels: .cu files through nvcc, where a toolkit was found."""

load(
    "@cuda//:defs.bzl",
    "CUDA_ARCHS",
    "CUDA_AVAILABLE",
    "CUDA_HOME",
    "CUDA_RELEASE",
)
load("//deploy/bazel:agg.bzl", "agg_cc_library")

# A multiply and an add are fused only where the source says fma.
_NVCC_FLAGS = [
    "-c",
    "-std=c++17",
    "-O3",
    "-lineinfo",
    "-Werror",
    "all-warnings",
    "--fmad=false",
    "-Xcompiler=-Wall,-Wextra,-Werror,-ffp-contract=off,-fPIC",
]

def _arch_flags():
    """Machine code for CUDA_ARCHS; PTX of the last for what comes after it."""
    flags = []
    for arch in CUDA_ARCHS:
        virtual = arch.replace("sm_", "compute_")
        code = "[%s,%s]" % (arch, virtual) if arch == CUDA_ARCHS[-1] else arch
        flags.append("-gencode=arch=%s,code=%s" % (virtual, code))
    return flags

def _host_compiler_flags():
    """The host's compiler; Debian's nvcc knows one that it can work with."""
    return [] if CUDA_HOME == "/usr" else ["-ccbin=/usr/bin/g++"]

def _cuda_objects_impl(ctx):
    headers = depset(
        ctx.files.hdrs,
        transitive = [
            dep[CcInfo].compilation_context.headers
            for dep in ctx.attr.deps
        ],
    )
    objects = []
    for source in ctx.files.srcs:
        object = ctx.actions.declare_file(
            "%s/%s.pic.o" % (ctx.label.name, source.basename),
        )
        ctx.actions.run(
            executable = CUDA_HOME + "/bin/nvcc",
            # The release is in the command, since the toolkit is no input.
            arguments = _NVCC_FLAGS + _arch_flags() + _host_compiler_flags() + [
                "-DAGG_CUDA_RELEASE=" + CUDA_RELEASE,
                "-I" + (ctx.label.workspace_root or "."),
                source.path,
                "-o",
                object.path,
            ],
            inputs = depset([source], transitive = [headers]),
            outputs = [object],
            env = {"PATH": "/usr/bin:/bin"},
            mnemonic = "CudaCompile",
            progress_message = "Compiling %s" % source.short_path,
        )
        objects.append(object)
    return [DefaultInfo(files = depset(objects))]

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "srcs": attr.label_list(allow_files = [".cu"]),
    },
)

def with_cuda(rule, **kwargs):
    """A target that is there only where a toolkit was found.

    Args:
      rule: agg_cc_library, say.
      **kwargs: its arguments.
    """
    if CUDA_AVAILABLE:
        rule(**kwargs)

def agg_cuda_library(name, srcs, hdrs = [], deps = [], **kwargs):
    """A cc_library of .cu files; no target at all without a toolkit.

    Args:
      name: the target.
      srcs: the .cu files. No absl in them: it triples their compile time.
      hdrs: device headers that srcs alone include.
      deps: libraries of what srcs include, the launchers' headers among them.
      **kwargs: as in cc_library.
    """
    if not CUDA_AVAILABLE:
        return
    _cuda_objects(
        name = name + "_objects",
        srcs = srcs,
        hdrs = hdrs,
        deps = deps,
        visibility = ["//visibility:private"],
    )
    agg_cc_library(
        name = name,
        srcs = [":" + name + "_objects"],
        deps = deps,
        **kwargs
    )
