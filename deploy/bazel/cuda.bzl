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
    "-std=c++17",
    "-O3",
    "-lineinfo",
    "-Werror",
    "all-warnings",
    "--fmad=false",
    "-Xcompiler=-Wall,-Wextra,-Werror,-ffp-contract=off,-fPIC",
]

_OBJECT_FLAGS = [
    "-c",
    "-Xptxas=-v",
    "-Xfatbin=-compress-all",
    "--keep",
]

# Compiles, and writes to the first argument what ptxas says of the kernels, and
# their threads per block, which the PTX alone says
# (tests/kernels/cuda/kernel_resources.py).
_COMPILE = """
log=$1 home=$2 release=$3
shift 3
kept=$log.kept
mkdir -p "$kept"
trap 'rm -rf "$kept"' EXIT
if ! "$home/bin/nvcc" --keep-dir "$kept" "$@" 2>"$kept/log"; then
  cat "$kept/log" >&2
  exit 1
fi
{
  echo "CUDA $release in $home"
  cat "$kept"/*.ptx | grep -E '^[.](visible [.])?entry |^[.]maxntid'
  grep -v 'Compile time' "$kept/log"
} >"$log"
"""

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

def _source_flags(ctx, source, output):
    return [
        "-DAGG_CUDA_RELEASE=" + CUDA_RELEASE,
        "-I" + (ctx.label.workspace_root or "."),
        source.path,
        "-o",
        output.path,
    ]

def _headers(ctx):
    return depset(
        ctx.files.hdrs,
        transitive = [
            dep[CcInfo].compilation_context.headers
            for dep in ctx.attr.deps
        ],
    )

def _cuda_objects_impl(ctx):
    headers = _headers(ctx)
    objects = []
    logs = []
    for source in ctx.files.srcs:
        stem = "%s/%s" % (ctx.label.name, source.basename)
        object = ctx.actions.declare_file(stem + ".pic.o")
        log = ctx.actions.declare_file(stem + ".ptxas")
        ctx.actions.run_shell(
            command = _COMPILE,
            # The release is in the command, since the toolkit is no input.
            arguments = [log.path, CUDA_HOME, CUDA_RELEASE] + _OBJECT_FLAGS +
                        _NVCC_FLAGS + _arch_flags() + _host_compiler_flags() +
                        _source_flags(ctx, source, object),
            inputs = depset([source], transitive = [headers]),
            outputs = [object, log],
            env = {"PATH": "/usr/bin:/bin"},
            mnemonic = "CudaCompile",
            progress_message = "Compiling %s" % source.short_path,
        )
        objects.append(object)
        logs.append(log)
    return [
        DefaultInfo(files = depset(objects)),
        OutputGroupInfo(resources = depset(objects + logs)),
    ]

_CUDA_ATTRS = {
    "deps": attr.label_list(providers = [CcInfo]),
    "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
    "srcs": attr.label_list(allow_files = [".cu"]),
}

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = _CUDA_ATTRS,
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

    # Objects, and what ptxas says of them.
    native.filegroup(
        name = name + "_resources",
        srcs = [":" + name + "_objects"],
        output_group = "resources",
    )
    agg_cc_library(
        name = name,
        srcs = [":" + name + "_objects"],
        deps = deps,
        **kwargs
    )
