"""What the driver says of a card: the answers that the code relies on.

    card_facts.py            AGG_CUDA_DRIVER: another driver than libcuda.so.1
"""

import ctypes
import mmap
import os
import time

_ATTRIBUTES = {  # cuda.h, CUdevice_attribute
    16: "multiprocessors", 20: "compute_mode", 40: "async_engines",
    41: "unified_addressing", 75: "compute_capability_major",
    76: "compute_capability_minor", 81: "shared_memory_per_multiprocessor",
    82: "registers_per_multiprocessor", 87: "single_to_double_ratio",
    88: "pageable_memory_access",
    91: "can_use_host_pointer_for_registered_memory",
    97: "shared_memory_per_block_optin", 99: "host_register_supported",
    100: "pageable_memory_uses_host_page_tables",
    102: "virtual_memory_management", 103: "posix_file_descriptors",
    111: "reserved_shared_memory_per_block",
    113: "read_only_host_register_supported", 116: "gpu_direct_rdma",
    124: "dma_buf", 125: "ipc_events",
}
_BYTES = 64 << 20
_PORTABLE, _READ_ONLY = 1, 8  # CU_MEMHOSTREGISTER_*


class Driver:
    """The driver's library, whose calls raise SystemExit with their error."""

    def __init__(self):
        name = os.environ.get("AGG_CUDA_DRIVER", "libcuda.so.1")
        try:
            self.calls = ctypes.CDLL(name)
        except OSError as error:
            raise SystemExit(f"no driver: {error}") from error

    def call(self, name, *arguments):
        error = getattr(self.calls, name)(*arguments)
        if error:
            raise SystemExit(f"{name}: CUresult {error}")


def main():
    driver = Driver()
    device, context = ctypes.c_int(), ctypes.c_void_p()
    driver.call("cuInit", 0)
    driver.call("cuDeviceGet", ctypes.byref(device), 0)
    for attribute, name in sorted(_ATTRIBUTES.items()):
        value = ctypes.c_int(-1)
        error = driver.calls.cuDeviceGetAttribute(
            ctypes.byref(value), attribute, device)
        print(f"{name} ({attribute}) = {value.value}" +
              (f" (error {error})" if error else ""))
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    driver.call("cuCtxPushCurrent_v2", context)
    # Memory that processes share, registered as a shard and as a worker do.
    descriptor = os.memfd_create("card_facts")
    os.ftruncate(descriptor, _BYTES)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                          ctypes.c_int, ctypes.c_int, ctypes.c_long]
    for access, flags, what in (
            (mmap.PROT_READ | mmap.PROT_WRITE, _PORTABLE, "read and write"),
            (mmap.PROT_READ, _PORTABLE | _READ_ONLY, "read only")):
        memory = libc.mmap(None, _BYTES, access, mmap.MAP_SHARED, descriptor, 0)
        if memory == ctypes.c_void_p(-1).value:
            raise SystemExit(f"mmap: {os.strerror(ctypes.get_errno())}")
        begin = time.monotonic()
        error = driver.calls.cuMemHostRegister_v2(
            ctypes.c_void_p(memory), ctypes.c_size_t(_BYTES), flags)
        took = (time.monotonic() - begin) * 1e3
        print(f"cuMemHostRegister of {_BYTES >> 20} MiB of shared memory, "
              f"{what}: CUresult {error}, {took:.1f} ms")
        if error == 0:
            driver.call("cuMemHostUnregister", ctypes.c_void_p(memory))


if __name__ == "__main__":
    main()
