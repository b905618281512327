// A CUDA device on the host, for tests where there is no GPU: it runs the very
// sources of kernels/cuda, block by block, with the threads of a block as
// coroutines. What it cannot show: speed, and what a real memory system or
// compiler does. What it does show: wrong indices (device memory ends at an
// unmapped page), misaligned vector loads, barriers that not all threads reach
// (an abort), missing barriers, missing waits for asynchronous copies, stream
// order and shared memory that nobody has written (as wrong results), and work
// for another device than the thread's.
//
// Streams are lazy if wanted: work runs as late as synchronisation allows, so
// that a missing wait meets stale data. Eager: at once. Two engines copy, one
// to the device and one from it, each what it was given first, whatever the
// streams: a copy brings all earlier ones of its direction with it.
#ifndef AGG_TESTS_KERNELS_CUDA_EMULATOR_DEVICE_H_
#define AGG_TESTS_KERNELS_CUDA_EMULATOR_DEVICE_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace agg::emulator {

struct Index {
  unsigned x = 0;
  unsigned y = 0;
  unsigned z = 0;
};

// The indices of the thread that runs right now.
extern Index thread_index;
extern Index block_index;

inline constexpr unsigned kLanes = 32;  // of a warp

// What each lane has brought to an exchange.
struct LaneValues {
  double first[kLanes];
  double second[kLanes];
};

// What a thread of a kernel may do besides computing.
void BlockBarrier();
// Waits until all lanes of the warp have brought their values and returns
// them; valid until the lane's next call.
const LaneValues& WarpExchange(double first, double second);

// Asynchronous copies of device memory to `num_filled` bytes of shared memory,
// 4 or 16, to which both are aligned; those after `num_bytes` are zeros. They
// are begun, made a group of the thread's, and made, but for its last
// `num_left` groups. Between its begin and the wait for it a copy leaves
// poison; a thread that ends before its copies aborts.
void StartCopy(void* to, const void* from, size_t num_bytes, size_t num_filled);
void CommitCopies();
void WaitForCopies(int64_t num_left);
void CheckCopiesEnded();

// Runs `thread` for every thread of every block, one block after the other;
// odd blocks start their threads in descending order. REQUIRES: grid.z == 1.
void RunGrid(dim3 grid, unsigned num_threads,
             const std::function<void()>& thread);

// What shared memory is full of when a block begins.
inline constexpr unsigned char kPoison = 0xff;
// Number of the block that runs, among all that ever ran; from 1 on.
int64_t BlockNumber();

// Adds work to a stream.
void Enqueue(cudaStream_t stream, std::function<void()> work);

// --- For tests --------------------------------------------------------------

void SetLazy(bool lazy);
// How many devices there are; default 1. The calling thread's is 0 now, and
// none counts as used.
void SetDeviceCount(int count);
// Whether a call has taken the device into use, as nearly every one does with
// the device of its thread: on a real one that costs memory.
bool DeviceUsed(int device);
// The flags that were set for the device.
unsigned DeviceFlags(int device);
// Memory that may be allocated on each device; default 1 TiB.
void SetDeviceBytes(int64_t num_bytes);
int64_t AllocatedDeviceBytes();  // of all devices
// fp32 operations in the time of an fp64 one; default 2.
void SetDoubleRatio(int ratio);
// The driver's version, as cudaDriverGetVersion gives it; 0: there is none. An
// older major version than the runtime's cannot serve it. Default: the
// runtime's.
void SetDriverVersion(int version);
// What bringing a kernel to the device fails with from now on.
void FailLoading(cudaError_t error);
// So far: of device memory, pinned, and registrations.
int64_t NumAllocations();

// What registering host memory fails with from now on; cudaSuccess: it works.
void FailRegistering(cudaError_t error);
// Has it fail so once `num_pieces` more have been registered.
void FailRegisteringAfter(int64_t num_pieces, cudaError_t error);
// Whether kernels find such memory at the host's address; default: yes.
void SetRegisteredServesKernels(bool serves);
int64_t NumRegistered();  // pieces of host memory, now
// The largest piece that was ever registered at once.
int64_t LargestRegistered();
// Bytes that asynchronous copies have brought from or to host memory that is
// neither pinned nor registered, which a real device copies once more.
int64_t StagedBytes();

// What all threads have called so far: calls that give the device work or wait
// for it, and among them launches, and waits for all that the device has to do.
struct Calls {
  int64_t all = 0;
  int64_t launches = 0;
  int64_t device_waits = 0;
};
Calls NumCalls();

// Makes a launch of the calling thread fail with `error`, once: the one that
// comes after `num_launches` more. Its kernel does not run.
void FailLaunchAfter(int num_launches, cudaError_t error);
void FailNextLaunch(cudaError_t error);
// Makes an asynchronous copy of the calling thread fail, once: the one that
// comes after `num_copies` more.
void FailCopyAfter(int num_copies, cudaError_t error);
void FailNextCopy(cudaError_t error);
// Launches and copies of all threads that have failed on request so far.
int64_t NumFailures();
// Behaves as a device that is lost: drops all work, and nearly every call fails
// with `error` from now on. cudaSuccess: works again.
void BreakDevice(cudaError_t error);

// What a kernel may touch: device memory, pinned and registered host memory.
struct Memory {
  const void* begin;
  int64_t num_bytes;
};
std::vector<Memory> KernelMemory();
// What asking for a kernel's carveout fails with from now on, and the number of
// kernels for which it was asked so far.
void FailPreferring(cudaError_t error);
int64_t NumPreferringShared();

cudaError_t LoadError();  // as FailLoading says
// Says, for loaders, that the kernel at the address wants all shared memory
// there can be.
cudaError_t PreferShared(const void* kernel);
// Returns, for launchers, what the launch has come to; not cudaSuccess: do not
// run it.
cudaError_t TakeLaunchError(cudaStream_t stream);

}  // namespace agg::emulator

#endif  // AGG_TESTS_KERNELS_CUDA_EMULATOR_DEVICE_H_
