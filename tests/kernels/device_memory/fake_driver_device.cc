// The fake driver's devices and contexts, and what tests set and ask
// (fake_cuda.h).
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/device_memory/fake_state.h"

namespace agg::fake_cuda {
namespace {

using cuda_abi::Context;
using cuda_abi::Uuid;

thread_local std::vector<FakeContext*> current;
thread_local int capture_mode = 0;  // CU_STREAM_CAPTURE_MODE_GLOBAL

// Hexadecimal digits of the environment, from which a process and its children
// have one device; else fixed bytes.
Uuid FirstUuid() {
  Uuid uuid;
  for (int i = 0; i < 16; ++i) uuid.bytes[i] = static_cast<char>(0xa0 + i);
  const char* const digits = std::getenv("AGG_FAKE_CUDA_UUID");
  if (digits == nullptr || std::strlen(digits) != 32) return uuid;
  for (int i = 0; i < 16; ++i) {
    const std::string byte(digits + 2 * i, 2);
    uuid.bytes[i] = static_cast<char>(std::strtoul(byte.c_str(), nullptr, 16));
  }
  return uuid;
}

// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
constexpr int kCaptureUnsupported = 900;

// Whether a thread may not call it while another one captures, unless it has
// said that this is none of its business. (NVIDIA documents that there are such
// functions; cuEventQuery is known as one.)
bool IsUnsafe(const std::string& name) {
  return name.rfind("cuEvent", 0) == 0 || name.rfind("cuStream", 0) == 0 ||
         name.rfind("cuMem", 0) == 0;
}

}  // namespace

State::State() : uuid(FirstUuid()) {
  if (const char* count = std::getenv("AGG_FAKE_CUDA_DEVICES")) {
    num_devices = std::clamp(std::atoi(count), 0, kMaxDevices);
  }
  const char* const reach = std::getenv("AGG_FAKE_CUDA_PEERS");
  peers = reach == nullptr || std::atoi(reach) != 0;
  for (int i = 0; i < kMaxDevices; ++i) {
    contexts[i].device = contexts[i].default_stream.device = i;
  }
}

// Never destroyed: streams may be used by exit handlers.
State& TheState() {
  static State* const state = new State;
  return *state;
}

int BeginCall(const char* name) {
  State& state = TheState();
  ++state.calls[name];
  const auto failure = state.failures.find(name);
  if (failure != state.failures.end()) return failure->second;
  if (state.captures && capture_mode == 0 && IsUnsafe(name)) {
    ++state.num_unsafe;
    return kCaptureUnsupported;
  }
  return state.initialised ? cuda_abi::kSuccess : cuda_abi::kNotInitialized;
}

int BeginCallInContext(const char* name) {
  const int error = BeginCall(name);
  if (error != cuda_abi::kSuccess) return error;
  return CurrentContext() == nullptr ? cuda_abi::kInvalidContext
                                     : cuda_abi::kSuccess;
}

FakeContext* CurrentContext() {
  return current.empty() ? nullptr : current.back();
}

}  // namespace agg::fake_cuda

namespace agg::cuda_abi {

using fake_cuda::BeginCall;
using fake_cuda::capture_mode;
using fake_cuda::current;
using fake_cuda::FakeContext;
using fake_cuda::Lock;
using fake_cuda::TheState;

// C functions in a namespace are the global ones (C++17 10.5).
extern "C" {

int cuInit(unsigned /*flags*/) {
  const Lock lock(TheState().mutex);
  TheState().initialised = true;
  return BeginCall("cuInit");
}

int cuGetErrorName(int error, const char** name) {
  switch (error) {
    case kInvalidValue:
      *name = "CUDA_ERROR_INVALID_VALUE";
      return kSuccess;
    case kOutOfMemory:
      *name = "CUDA_ERROR_OUT_OF_MEMORY";
      return kSuccess;
    case kNotInitialized:
      *name = "CUDA_ERROR_NOT_INITIALIZED";
      return kSuccess;
    case kInvalidDevice:
      *name = "CUDA_ERROR_INVALID_DEVICE";
      return kSuccess;
    case kInvalidContext:
      *name = "CUDA_ERROR_INVALID_CONTEXT";
      return kSuccess;
    case kNotSupported:
      *name = "CUDA_ERROR_NOT_SUPPORTED";
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

int cuDeviceGetCount(int* count) {
  const Lock lock(TheState().mutex);
  *count = TheState().num_devices;
  return BeginCall("cuDeviceGetCount");
}

int cuDeviceGet(int* device, int ordinal) {
  const Lock lock(TheState().mutex);
  const int error = BeginCall("cuDeviceGet");
  if (error != kSuccess) return error;
  if (ordinal < 0 || ordinal >= TheState().num_devices) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

int cuDeviceGetUuid_v2(Uuid* uuid, int device) {
  const Lock lock(TheState().mutex);
  *uuid = TheState().uuid;
  uuid->bytes[15] = static_cast<char>(uuid->bytes[15] + device);
  return BeginCall("cuDeviceGetUuid_v2");
}

int cuDeviceGetAttribute(int* value, int /*attribute*/, int /*device*/) {
  const Lock lock(TheState().mutex);
  *value = TheState().shares ? 1 : 0;
  return BeginCall("cuDeviceGetAttribute");
}

int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  const Lock lock(TheState().mutex);
  *can = TheState().peers && device != peer ? 1 : 0;
  return BeginCall("cuDeviceCanAccessPeer");
}

int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  const Lock lock(TheState().mutex);
  *flags = 0;
  *active = TheState().contexts[device].num_retained > 0 ? 1 : 0;
  return BeginCall("cuDevicePrimaryCtxGetState");
}

int cuDevicePrimaryCtxRetain(Context* context, int device) {
  const Lock lock(TheState().mutex);
  const int error = BeginCall("cuDevicePrimaryCtxRetain");
  if (error != kSuccess) return error;
  FakeContext& primary = TheState().contexts[device];
  ++primary.num_retained;
  *context = &primary;
  return kSuccess;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  const Lock lock(TheState().mutex);
  FakeContext& primary = TheState().contexts[device];
  if (primary.num_retained == 0) return kInvalidContext;
  --primary.num_retained;
  return BeginCall("cuDevicePrimaryCtxRelease_v2");
}

int cuCtxPushCurrent_v2(Context context) {
  const Lock lock(TheState().mutex);
  const int error = BeginCall("cuCtxPushCurrent_v2");
  if (error != kSuccess) return error;
  auto* const pushed = static_cast<FakeContext*>(context);
  if (pushed == nullptr || pushed->num_retained == 0) return kInvalidContext;
  current.push_back(pushed);
  return kSuccess;
}

int cuCtxPopCurrent_v2(Context* context) {
  const Lock lock(TheState().mutex);
  if (current.empty()) return kInvalidContext;
  *context = current.back();
  current.pop_back();
  return BeginCall("cuCtxPopCurrent_v2");
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  const Lock lock(TheState().mutex);
  if (*mode < 0 || *mode > 2) return kInvalidValue;
  std::swap(*mode, capture_mode);
  return BeginCall("cuThreadExchangeStreamCaptureMode");
}

// --- Controls ---------------------------------------------------------------

void agg_fake_cuda_fail(const char* name, int code) {
  const Lock lock(TheState().mutex);
  if (code == kSuccess) {
    TheState().failures.erase(name);
  } else {
    TheState().failures[name] = code;
  }
}

int64_t agg_fake_cuda_calls(const char* name) {
  const Lock lock(TheState().mutex);
  return TheState().calls[name];
}

void agg_fake_cuda_set_uuid(const char* bytes) {
  const Lock lock(TheState().mutex);
  std::memcpy(TheState().uuid.bytes, bytes, sizeof(Uuid));
}

void agg_fake_cuda_set_devices(int count) {
  const Lock lock(TheState().mutex);
  TheState().num_devices = std::clamp(count, 0, fake_cuda::kMaxDevices);
}

void agg_fake_cuda_set_shares(int shares) {
  const Lock lock(TheState().mutex);
  TheState().shares = shares != 0;
}

void agg_fake_cuda_set_peers(int peers) {
  const Lock lock(TheState().mutex);
  TheState().peers = peers != 0;
}

void agg_fake_cuda_set_pointers_want_context(int want) {
  const Lock lock(TheState().mutex);
  TheState().pointers_want_context = want != 0;
}

void agg_fake_cuda_set_captures(int captures) {
  const Lock lock(TheState().mutex);
  TheState().captures = captures != 0;
}

int64_t agg_fake_cuda_num_unsafe() {
  const Lock lock(TheState().mutex);
  return TheState().num_unsafe;
}

int64_t agg_fake_cuda_num_live() {
  const Lock lock(TheState().mutex);
  fake_cuda::State& state = TheState();
  int64_t count = state.num_streams + state.num_events;
  count += static_cast<int64_t>(state.handles.size() + state.ranges.size() +
                                state.pinned.size());
  for (const FakeContext& context : state.contexts) {
    count += context.num_retained;
  }
  return count;
}

int64_t agg_fake_cuda_num_current() {
  return static_cast<int64_t>(current.size());
}

}  // extern "C"

}  // namespace agg::cuda_abi
