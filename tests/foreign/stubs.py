"""The messages and calls of proto/*.proto, generated when this is imported.

Debian's protoc writes the messages' modules into a temporary folder; calls are
made from the services' descriptors, so that grpcio-tools is not needed.
"""

import importlib
import pathlib
import subprocess
import sys
import tempfile

import grpc
from google.protobuf import message_factory

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _generate():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["protoc", f"--python_out={folder}", "proto/agg.proto",
             "proto/admin.proto", "proto/control.proto",
             "proto/external_rule.proto", "proto/reduction.proto",
             "proto/region.proto"], cwd=ROOT,
            check=True)
        sys.path.insert(0, folder)
        try:
            return (importlib.import_module("proto.agg_pb2"),
                    importlib.import_module("proto.admin_pb2"),
                    importlib.import_module("proto.control_pb2"),
                    importlib.import_module("proto.external_rule_pb2"),
                    importlib.import_module("proto.reduction_pb2"),
                    importlib.import_module("proto.region_pb2"))
        finally:
            sys.path.remove(folder)


agg, admin, control, external_rule, reduction, region = _generate()


def serialize(message):
    """Hostile tests send bytes that no message has."""
    if isinstance(message, bytes):
        return message
    return message.SerializeToString()


class Stub:
    """The calls of one service on a channel, by their names.

    Pull's replies stay bytes: the frame's layout is a part of the contract,
    and protobuf would accept others.
    """

    def __init__(self, channel, service):
        for method in service.methods:
            arity = "_".join(
                "stream" if streaming else "unary"
                for streaming in (method.client_streaming,
                                  method.server_streaming))
            reply = message_factory.GetMessageClass(method.output_type)
            setattr(self, method.name, getattr(channel, arity)(
                f"/{service.full_name}/{method.name}",
                request_serializer=serialize,
                response_deserializer=(
                    None if method.name == "Pull" else reply.FromString)))


class Peer:
    """One connection to a shard, with all services.

    gRPC takes at most 4 MiB of a message unless it is told otherwise; a frame
    with a full slice is larger than that.
    """

    def __init__(self, address, options=(), credentials=None):
        self.address = address
        settings = {
            "grpc.max_receive_message_length": 8 << 20,
            # Else channels with equal options share a connection.
            "grpc.use_local_subchannel_pool": 1,
            # Else http_proxy of the environment is asked, for loopback, too.
            "grpc.enable_http_proxy": 0,
        }
        settings.update(options)
        self.channel = (
            grpc.secure_channel(address, credentials, list(settings.items()))
            if credentials
            else grpc.insecure_channel(address, list(settings.items())))
        self.use(self.channel)

    def use(self, channel):
        """Makes all calls on this channel, one around the peer's own."""
        services = agg.DESCRIPTOR.services_by_name
        self.coordinator = Stub(channel, services["Coordinator"])
        self.shard = Stub(channel, services["Shard"])
        self.control = Stub(
            channel,
            control.DESCRIPTOR.services_by_name["ShardControl"])
        self.admin = Stub(channel,
                          admin.DESCRIPTOR.services_by_name["Admin"])
        self.reductions = Stub(
            channel,
            reduction.DESCRIPTOR.services_by_name["Reductions"])
        self.external_rules = Stub(
            channel,
            external_rule.DESCRIPTOR.services_by_name["ExternalRules"])

    def close(self):
        self.channel.close()
