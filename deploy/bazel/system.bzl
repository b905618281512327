"""Repositories for libraries and tools that Debian packages installed."""

def _system_library_impl(ctx):
    header = "/usr/include/" + ctx.attr.header
    if not ctx.path(header).exists:
        fail("@%s: %s is missing; run deploy/setup.sh" %
             (ctx.name, header))

    # Visibility is given to packages of this tree, which is not always the main
    # repository.
    ours = "@%s//" % Label("//:BUILD").workspace_name
    ctx.file("BUILD", ctx.read(ctx.attr.build_file).replace("@//", ours))

# A library whose headers lie in /usr/include, where compilers look by
# themselves. Its targets carry link options and visibility, nothing else.
system_library = repository_rule(
    implementation = _system_library_impl,
    local = True,
    attrs = {
        "build_file": attr.label(mandatory = True),
        "header": attr.string(mandatory = True),
    },
)

def _system_tools_impl(ctx):
    for tool in ctx.attr.tools:
        path = ctx.path("/usr/bin/" + tool)
        if not path.exists:
            fail("%s is missing; run deploy/setup.sh" % path)
        ctx.symlink(path, tool)
    ctx.file("BUILD", "exports_files(%r)\n" % ctx.attr.tools)

# Programs in /usr/bin as files that actions can depend on.
system_tools = repository_rule(
    implementation = _system_tools_impl,
    local = True,
    attrs = {"tools": attr.string_list(mandatory = True)},
)
