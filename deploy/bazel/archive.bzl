"""One static library of everything that a library needs from this tree."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _agg_archive_impl(ctx):
    objects = {}
    for dep in ctx.attr.deps:
        for linker_input in dep[CcInfo].linking_context.linker_inputs.to_list():
            for library in linker_input.libraries:
                for file in library.pic_objects or library.objects:
                    objects[file] = True
    archive = ctx.actions.declare_file(ctx.label.name)

    # Not r, which keeps one of several files of a name.
    arguments = ctx.actions.args()
    arguments.add("qcsD")
    arguments.add(archive)
    arguments.add_all(objects.keys())
    ctx.actions.run(
        executable = find_cpp_toolchain(ctx).ar_executable,
        arguments = [arguments],
        inputs = objects.keys(),
        outputs = [archive],
        mnemonic = "AggArchive",
        progress_message = "Archiving %s" % ctx.label,
    )
    return [DefaultInfo(files = depset([archive]))]

# `name` is the file's. System libraries are not in it.
agg_archive = rule(
    implementation = _agg_archive_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(
            default = "@bazel_tools//tools/cpp:current_cc_toolchain",
        ),
    },
)
