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
CUDA_HOME = {home}
CUDA_RELEASE = {release}
"""

_BUILD = """
package(default_visibility = ["@{ours}//:cuda_users"])

cc_library(
    name = "headers",
    hdrs = glob(["include/**"]),
    includes = ["include"],
)

# Static, so that a binary starts where there is no CUDA.
cc_library(
    name = "cudart",
    linkopts = ["{lib}/libcudart_static.a", "-ldl", "-lpthread", "-lrt"],
    deps = [":headers"],
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
    release = ""
    if home:
        version = ctx.execute([home + "/bin/nvcc", "--version"]).stdout
        release = version.split("release ")[-1].split(",")[0]
    ctx.file("defs.bzl", _DEFS.format(
        available = bool(home),
        home = repr(home),
        release = repr(release),
    ))
    if not home:
        ctx.file("BUILD", "")
        return
    ctx.symlink(home + "/include", "include")
    lib = home + "/lib64"
    ours = Label("//:BUILD").workspace_name
    ctx.file("BUILD", _BUILD.format(lib = lib, ours = ours))

# Yields @cuda//:defs.bzl with the bool CUDA_AVAILABLE, CUDA_HOME (or None) and
# CUDA_RELEASE, and, where a toolkit is found, @cuda//:headers and :cudart.
# AGG_CUDA=0 ignores a toolkit, AGG_CUDA=1 insists on one (--repo_env;
# --config=nocuda and cuda).
cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = ["AGG_CUDA", "CUDA_HOME", "PATH"],
    local = True,
)
