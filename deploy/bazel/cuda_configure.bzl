"""Finds an optional CUDA toolkit."""

def _cuda_home(ctx):
    """The toolkit's folder, or None."""
    candidates = []
    if ctx.os.environ.get("CUDA_HOME"):
        candidates.append(ctx.os.environ["CUDA_HOME"])
    candidates.append("/usr/local/cuda")
    nvcc = ctx.which("nvcc")
    if nvcc:
        candidates.append(str(nvcc.realpath.dirname.dirname))
    for home in candidates:
        if (ctx.path(home + "/bin/nvcc").exists and
            ctx.path(home + "/include/cuda_runtime.h").exists):
            return home
    return None

_DEFS = """# Written by cuda_configure.
CUDA_AVAILABLE = {available}
"""

_BUILD = """
package(default_visibility = ["@//:cuda_users"])

exports_files(["nvcc"])

cc_library(
    name = "headers",
    hdrs = glob(["include/**"]),
    includes = ["include"],
)

cc_library(
    name = "cudart",
    linkopts = ["-L{lib}", "-Wl,-rpath,{lib}", "-lcudart"],
    deps = [":headers"],
)

cc_library(
    name = "cublas",
    linkopts = ["-L{lib}", "-Wl,-rpath,{lib}", "-lcublas"],
    deps = [":cudart"],
)
"""

def _cuda_configure_impl(ctx):
    wanted = ctx.os.environ.get("AGG_CUDA", "auto")
    if wanted not in ["auto", "0", "1"]:
        fail("AGG_CUDA is %r; allowed: auto, 0, 1" % wanted)
    home = None if wanted == "0" else _cuda_home(ctx)
    if wanted == "1" and not home:
        fail("AGG_CUDA=1, but there is no CUDA toolkit in CUDA_HOME, " +
             "/usr/local/cuda or beside nvcc")
    ctx.file("defs.bzl", _DEFS.format(available = bool(home)))
    if not home:
        ctx.file("BUILD", "")
        return
    ctx.symlink(home + "/bin/nvcc", "nvcc")
    ctx.symlink(home + "/include", "include")
    lib = home + "/lib64"
    ctx.file("BUILD", _BUILD.format(lib = lib))

# Yields @cuda//:defs.bzl with the bool CUDA_AVAILABLE and, where a toolkit is
# found, @cuda//:nvcc, :headers, :cudart and :cublas. AGG_CUDA=0 ignores a
# toolkit, AGG_CUDA=1 insists on one (--repo_env; --config=nocuda and cuda).
cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = ["AGG_CUDA", "CUDA_HOME", "PATH"],
    local = True,
)
