// A CUDA driver on the host, for tests where there is no GPU: a shared library
// with the functions of cuda_abi.h, opened as NVIDIA's is
// (libfake_cuda_driver.so; AGG_CUDA_DRIVER names it to programs).
//
// Device memory is memory of the host, behind which a page cannot be touched,
// and which processes share as they share a device's. Streams are lazy: work
// runs as late as synchronisation allows, so that a missing wait meets stale
// data. Who asks whether an event is done hears no at first. Calls that want a
// current context fail without one. What it cannot show: a device's own memory
// system, and what NVIDIA's driver refuses besides.
//
// The environment: AGG_FAKE_CUDA_UUID, 32 hexadecimal digits;
// AGG_FAKE_CUDA_DEVICES, the number of devices; by default one, always the
// same. AGG_FAKE_CUDA_PEERS=0: as SetPeers(false).
#ifndef AGG_TESTS_KERNELS_DEVICE_MEMORY_FAKE_CUDA_H_
#define AGG_TESTS_KERNELS_DEVICE_MEMORY_FAKE_CUDA_H_

#include <cstdint>
#include <functional>
#include <string>

namespace agg {

// The library, for tests that have it in `data`; relative to the folder that
// they start in.
inline constexpr const char* kFakeCudaPath =
    "tests/kernels/device_memory/libfake_cuda_driver.so";

// What tests set and ask of it, through its functions agg_fake_cuda_*, which
// tests in Python call by themselves. Thread-safe.
namespace fake_cuda {

// Device memory of the caller, as cudaMalloc gives it: not cleared in general,
// here zeros. Streams may no longer use what is freed.
char* Alloc(int64_t num_bytes, int device = 0);
void Free(void* memory);
// Gives the default stream of a device work, as a kernel is launched.
void Launch(int device, std::function<void()> kernel);

// The default stream of a device hangs from now on, as behind a kernel that
// never ends: who waits for it, one thread at most, does so until it no longer
// hangs.
void Hang(int device, bool hangs);

// Number of questions that an event answers with "not yet" before its stream
// gets there: 1 unless set.
void SetAnswersBefore(int num_questions);

// Does all that the default stream of a device was given: before what kernels
// refer to is gone.
void Finish(int device);

// The driver's function `name` (cuda_abi.h) fails with `code` from now
// on; 0: it works.
void Fail(const std::string& name, int code);
int64_t NumCalls(const std::string& name);  // so far
// Copies between devices and the host, in both directions, fail so.
void FailHostCopies(int code);
int64_t NumHostCopies();
// Copies on streams of that device, to and from devices, fail with `code`; 0:
// they work.
void FailCopiesOf(int device, int code);
// Objects that are there now: retained contexts, handles, ranges of addresses,
// streams, events and pieces of pinned memory.
int64_t NumLive();
int64_t NumCurrent();  // contexts on the calling thread's stack
void SetUuid(const std::string& bytes);  // 16 bytes
void SetNumDevices(int count);           // up to 8
// What the devices say of their virtual memory management.
void SetShares(bool shares);
// Whether the driver says whose memory it is only to threads that have a
// context; default: no.
void SetPointersWantContext(bool want);
// Whether a thread of the caller's captures a graph, in the mode that PyTorch
// uses; and how many calls of other threads would have ended that.
void SetCaptures(bool captures);
int64_t NumUnsafe();
// Whether devices reach each other's memory, and that of devices that are not
// visible; default: yes.
void SetPeers(bool peers);

}  // namespace fake_cuda
}  // namespace agg

#endif  // AGG_TESTS_KERNELS_DEVICE_MEMORY_FAKE_CUDA_H_
