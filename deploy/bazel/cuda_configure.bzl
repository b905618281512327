"""Finds an optional CUDA toolkit."""

# The oldest toolkit that compiles the kernels.
_OLDEST_RELEASE = [12, 0]

# What machine code is built for: one per generation, since it runs on every
# later card of its own. Older ones lack the tensor cores for doubles.
_ARCHS = ["sm_80", "sm_90", "sm_100", "sm_120"]

# Beside include/: NVIDIA's installer and wheels, Debian's packages.
_LIB_FOLDERS = [
    "lib64",
    "lib",
    "targets/x86_64-linux/lib",
    "lib/x86_64-linux-gnu",
]

_WITHOUT = "; AGG_CUDA=0 (--config=nocuda) builds without CUDA"

def _is_toolkit(ctx, home):
    return (ctx.path(home + "/bin/nvcc").exists and
            ctx.path(home + "/include/cuda_runtime.h").exists)

def _cuda_home(ctx):
    """The toolkit's folder, or None."""
    named = ctx.os.environ.get("CUDA_HOME")
    if named:
        if _is_toolkit(ctx, named):
            return named

        # Debian's packages: this folder is for who looks for one, and nearly
        # empty.
        if named.rstrip("/") == "/usr/lib/cuda" and _is_toolkit(ctx, "/usr"):
            return "/usr"
        fail(("CUDA_HOME is %r, which has no bin/nvcc and no " +
              "include/cuda_runtime.h; allowed: a toolkit's folder, /usr for " +
              "Debian's packages, or nothing, then /usr/local/cuda and what " +
              "nvcc is in are tried" + _WITHOUT) % named)
    candidates = ["/usr/local/cuda"]
    nvcc = ctx.which("nvcc")
    if nvcc:
        candidates.append(str(nvcc.realpath.dirname.dirname))
    for home in candidates:
        if _is_toolkit(ctx, home):
            return home
    return None

def _run(ctx, command):
    result = ctx.execute(command)
    if result.return_code != 0:
        fail("%s: %s%s" % (" ".join(command), result.stderr, _WITHOUT))
    return result.stdout

def _release(ctx, home):
    """The toolkit's release, such as "13.0"."""
    version = _run(ctx, [home + "/bin/nvcc", "--version"])
    release = version.split("release ")[-1].split(",")[0]
    if [int(part) for part in release.split(".")] < _OLDEST_RELEASE:
        fail("the CUDA toolkit in %s is release %s; needed: %d.%d or later%s" %
             (home, release, _OLDEST_RELEASE[0], _OLDEST_RELEASE[1], _WITHOUT))
    return release

def _archs(ctx, home, release):
    """The architectures to build machine code for, oldest first."""
    codes = _run(ctx, [home + "/bin/nvcc", "--list-gpu-code"]).split("\n")
    known = [arch for arch in _ARCHS if arch in codes]
    wanted = ctx.os.environ.get("AGG_CUDA_ARCHS", "")
    if not wanted:
        return known
    names = [name.strip() for name in wanted.split(",")]
    for name in names:
        if name not in known:
            fail(("AGG_CUDA_ARCHS has %r; allowed with CUDA %s: %s, several " +
                  "with commas between them, or nothing for all") %
                 (name, release, ", ".join(known)))
    return [arch for arch in known if arch in names]

def _lib(ctx, home):
    """The folder of the static runtime."""
    for folder in _LIB_FOLDERS:
        if ctx.path("%s/%s/libcudart_static.a" % (home, folder)).exists:
            return home + "/" + folder
    fail("no libcudart_static.a in %s of the CUDA toolkit in %s%s" %
         (", ".join(_LIB_FOLDERS), home, _WITHOUT))

_DEFS = """# Written by cuda_configure.
CUDA_ARCHS = {archs}
CUDA_AVAILABLE = {available}
CUDA_HOME = {home}
CUDA_RELEASE = {release}
"""

_BUILD = """
package(default_visibility = ["@{ours}//:cuda_users"])

cc_library(
    name = "headers",
{headers})

# Static, so that a binary starts where there is no CUDA.
cc_library(
    name = "cudart",
    linkopts = ["{lib}/libcudart_static.a", "-ldl", "-lpthread", "-lrt"],
    deps = [":headers"],
)
"""

_HEADERS = """    hdrs = glob(["include/**"]),
    includes = ["include"],
"""

def _cuda_configure_impl(ctx):
    wanted = ctx.os.environ.get("AGG_CUDA", "auto")
    if wanted not in ["auto", "0", "1"]:
        fail("AGG_CUDA is %r; allowed: auto, 0, 1" % wanted)
    home = None if wanted == "0" else _cuda_home(ctx)
    if wanted == "1" and not home:
        fail("AGG_CUDA=1, but there is no CUDA toolkit in /usr/local/cuda or " +
             "beside nvcc, and CUDA_HOME names none")
    release = _release(ctx, home) if home else ""
    ctx.file("defs.bzl", _DEFS.format(
        archs = repr(_archs(ctx, home, release) if home else []),
        available = bool(home),
        home = repr(home),
        release = repr(release),
    ))
    if not home:
        ctx.file("BUILD", "")
        return

    # Compilers find the headers in /usr/include by themselves, and must not be
    # told to look there before their own.
    if home != "/usr":
        ctx.symlink(home + "/include", "include")
    ctx.file("BUILD", _BUILD.format(
        headers = _HEADERS if home != "/usr" else "",
        lib = _lib(ctx, home),
        ours = Label("//:BUILD").workspace_name,
    ))

# Yields @cuda//:defs.bzl with the bool CUDA_AVAILABLE, CUDA_HOME (or None),
# CUDA_RELEASE and CUDA_ARCHS, and, where a toolkit is found, @cuda//:headers
# and :cudart. AGG_CUDA=0 ignores a toolkit, AGG_CUDA=1 insists on one
# (--repo_env; --config=nocuda and cuda). AGG_CUDA_ARCHS=sm_90 builds machine
# code for fewer architectures, faster.
cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = ["AGG_CUDA", "AGG_CUDA_ARCHS", "CUDA_HOME", "PATH"],
    local = True,
)
