// What the fake driver has at the moment. Only for its own files
// (fake_driver_*.cc).
#ifndef AGG_TESTS_KERNELS_DEVICE_MEMORY_FAKE_STATE_H_
#define AGG_TESTS_KERNELS_DEVICE_MEMORY_FAKE_STATE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/device_memory/cuda_abi.h"

// The driver's functions, as they are declared to those that call them.
namespace agg::cuda_abi {
extern "C" {
#define AGG_CUDA_DECLARE(name, parameters) int name parameters;
AGG_CUDA_FUNCTIONS(AGG_CUDA_DECLARE)
#undef AGG_CUDA_DECLARE
int cuDeviceGetUuid_v2(Uuid* uuid, int device);
}
}  // namespace agg::cuda_abi

namespace agg::fake_cuda {

inline constexpr size_t kGranularity = size_t{2} << 20;
inline constexpr size_t kPage = 4096;  // a guard behind all device memory
inline constexpr int kMaxDevices = 8;

struct FakeStream {
  int device = 0;
  bool hangs = false;
  std::deque<std::function<void()>> waiting;
  int64_t num_run = 0;
  int64_t num_enqueued = 0;
};

struct FakeEvent {
  FakeStream* stream = nullptr;  // null: never recorded
  int64_t position = 0;  // work that the stream had been given before it
  int num_asked = 0;     // times whether it is done
};

struct FakeContext {
  int device = 0;
  int num_retained = 0;
  FakeStream default_stream;
  int copies_fail = 0;  // what copies between devices fail with
};

// Addresses that a device may use, or will be given memory.
struct Range {
  size_t size = 0;
  int device = 0;
  bool mapped = false;
  uint32_t users = 0;  // a bit for each device that may use it
};

struct FakeMemory {
  int fd = -1;
  size_t size = 0;
  int device = 0;
};

struct State {
  // Guards what follows. Recursive, since work may ask the fake by itself.
  std::recursive_mutex mutex;
  std::condition_variable_any goes_on;  // a stream that hung
  bool initialised = false;
  bool shares = true;   // what the attributes of virtual memory say
  bool peers = true;    // devices reach each other's memory
  int num_not_yet = 1;  // answers of an event before its stream gets there
  bool pointers_want_context = false;  // questions about them do
  bool captures = false;   // another thread does, in the global mode
  int64_t num_unsafe = 0;  // calls that have ended such a capture
  int num_devices = 1;
  cuda_abi::Uuid uuid;  // of device 0; those of others end one higher each
  FakeContext contexts[kMaxDevices];
  std::map<char*, Range> ranges;   // by their first address
  std::map<char*, size_t> pinned;  // host memory
  std::map<cuda_abi::Handle, FakeMemory> handles;
  cuda_abi::Handle last_handle = 0;
  std::vector<std::unique_ptr<FakeStream>> streams;  // destroyed ones, too
  int64_t num_streams = 0;
  int64_t num_events = 0;
  std::map<std::string, int64_t> calls;
  std::map<std::string, int> failures;  // what the calls fail with

  State();
};

State& TheState();
using Lock = std::lock_guard<std::recursive_mutex>;

// Counts a call. What a test wants it to fail with, or kNotInitialized before
// cuInit; else 0. REQUIRES: the state is locked.
int BeginCall(const char* name);
// Does what BeginCall does, and says kInvalidContext if the thread has no
// current context.
int BeginCallInContext(const char* name);
// Null: none.
FakeContext* CurrentContext();

// Addresses of nothing, as aligned as a device's memory, with a guard behind
// them; null: none.
char* Reserve(size_t size);
// The range that has all of the bytes; null: none.
const Range* RangeOf(const void* address, size_t size);
// The host's, as in /proc/self/maps: "rw-p"; "": nothing is mapped there.
std::string AccessTo(const void* address);
// Whether it is pinned host memory, or registered.
bool IsPinned(const void* address, size_t size);

// Does the stream's work up to `position`; waits while it hangs. REQUIRES: the
// calling thread has locked the state once.
void RunUntil(FakeStream* stream, int64_t position);
void Enqueue(FakeStream* stream, std::function<void()> work);

}  // namespace agg::fake_cuda

#endif  // AGG_TESTS_KERNELS_DEVICE_MEMORY_FAKE_STATE_H_
