"""C++ from .proto files with Debian's protoc and grpc_cpp_plugin."""

_ProtoSources = provider(
    "The .proto files of a target and of all that it imports.",
    fields = ["sources"],
)

def _generate_cc_impl(ctx):
    sources = depset(
        ctx.files.srcs,
        transitive = [dep[_ProtoSources].sources for dep in ctx.attr.deps],
    )

    # Imports are relative to the root of this repository, and so are outputs:
    # "." here, external/agg_server in a workspace that uses it.
    root = ctx.label.workspace_root
    output = "/".join([part for part in [ctx.bin_dir.path, root] if part])
    arguments = ctx.actions.args()
    arguments.add("-I" + (root or "."))
    arguments.add("-I/usr/include")
    arguments.add(output, format = "--cpp_out=%s")
    tools = [ctx.file._protoc]
    if ctx.attr.grpc:
        arguments.add(
            ctx.file._grpc_cpp_plugin,
            format = "--plugin=protoc-gen-grpc=%s",
        )
        arguments.add(output, format = "--grpc_out=%s")
        tools.append(ctx.file._grpc_cpp_plugin)
    arguments.add_all(ctx.files.srcs)
    ctx.actions.run(
        executable = ctx.file._protoc,
        arguments = [arguments],
        inputs = sources,
        outputs = ctx.outputs.outs,
        tools = tools,
        mnemonic = "AggProtoc",
        progress_message = "Generating C++ of %s" % ctx.label,
    )
    return [
        DefaultInfo(files = depset(ctx.outputs.outs)),
        _ProtoSources(sources = sources),
    ]

_generate_cc = rule(
    implementation = _generate_cc_impl,
    output_to_genfiles = False,
    attrs = {
        "srcs": attr.label_list(allow_files = [".proto"], mandatory = True),
        "deps": attr.label_list(providers = [_ProtoSources]),
        "grpc": attr.bool(),
        "outs": attr.output_list(mandatory = True),
        "_grpc_cpp_plugin": attr.label(
            default = "@system_tools//:grpc_cpp_plugin",
            allow_single_file = True,
        ),
        "_protoc": attr.label(
            default = "@system_tools//:protoc",
            allow_single_file = True,
        ),
    },
)

def _generated(label):
    """The label of the _generate_cc target of an agg_proto_library."""
    if ":" not in label:
        label += ":" + label.split("/")[-1]
    return label + "_generated"

def agg_proto_library(name, srcs, deps = [], grpc = False, **kwargs):
    """A cc_library of generated messages (and services).

    Args:
      name: the cc_library; include "<package>/<file>.pb.h" (".grpc.pb.h").
      srcs: the .proto files. They import "<package>/<file>.proto".
      deps: the agg_proto_library targets that srcs import.
      grpc: whether to generate services, too.
      **kwargs: visibility and other common attributes.
    """
    suffixes = [".pb"] + ([".grpc.pb"] if grpc else [])
    stems = [source[:-len(".proto")] + suffix for source in srcs for suffix in suffixes]
    headers = [stem + ".h" for stem in stems]
    sources = [stem + ".cc" for stem in stems]
    _generate_cc(
        name = _generated(":" + name)[1:],
        srcs = srcs,
        outs = headers + sources,
        grpc = grpc,
        deps = [_generated(dep) for dep in deps],
        **kwargs
    )
    native.cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        copts = ["-w"],  # Not our code.
        linkstatic = True,
        deps = deps + ["@protobuf"] + (["@grpc//:grpc++"] if grpc else []),
        **kwargs
    )
