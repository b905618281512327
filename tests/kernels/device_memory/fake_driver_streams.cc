// The fake driver's streams, events and copies. Work runs as late as
// synchronisation allows, so that a missing wait meets stale data.
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/kernels/device_memory/fake_state.h"

namespace agg::fake_cuda {

void RunUntil(FakeStream* stream, int64_t position) {
  while (stream->num_run < position) {
    if (stream->hangs) {
      TheState().goes_on.wait(TheState().mutex);
      continue;
    }
    const std::function<void()> work = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    ++stream->num_run;
    work();
  }
}

void Enqueue(FakeStream* stream, std::function<void()> work) {
  stream->waiting.push_back(std::move(work));
  ++stream->num_enqueued;
}

namespace {

// Null is the legacy default stream of the current context.
FakeStream* StreamOf(cuda_abi::Stream stream) {
  return stream == nullptr ? &CurrentContext()->default_stream
                           : static_cast<FakeStream*>(stream);
}

enum class Side { kDevice, kPinned, kPageable, kInvalid };

// Device memory that the bytes leave, or that nobody has made accessible to the
// device, is no place for its copy.
Side SideOf(const void* address, size_t size, int device) {
  if (RangeOf(address, 1) != nullptr) {
    const Range* const range = RangeOf(address, size);
    const bool may = range != nullptr && (range->users >> device & 1) != 0;
    return may ? Side::kDevice : Side::kInvalid;
  }
  return IsPinned(address, size) ? Side::kPinned : Side::kPageable;
}

// As the driver's documentation says of pageable memory: bytes of it are taken
// before the call returns, or are there.
int Copy(void* to, const void* from, size_t size, FakeStream* stream) {
  const Side source = SideOf(from, size, stream->device);
  const Side target = SideOf(to, size, stream->device);
  if (source == Side::kInvalid || target == Side::kInvalid) {
    return cuda_abi::kInvalidValue;
  }
  if (target == Side::kPageable) {
    RunUntil(stream, stream->num_enqueued);
    std::memcpy(to, from, size);
  } else if (source == Side::kPageable) {
    const char* const begin = static_cast<const char*>(from);
    Enqueue(stream, [to, bytes = std::vector<char>(begin, begin + size)] {
      std::memcpy(to, bytes.data(), bytes.size());
    });
  } else {
    Enqueue(stream, [=] { std::memcpy(to, from, size); });
  }
  return cuda_abi::kSuccess;
}

}  // namespace
}  // namespace agg::fake_cuda

namespace agg::cuda_abi {

using fake_cuda::BeginCall;
using fake_cuda::BeginCallInContext;
using fake_cuda::FakeEvent;
using fake_cuda::FakeStream;
using fake_cuda::Lock;
using fake_cuda::RunUntil;
using fake_cuda::TheState;

extern "C" {

int cuStreamCreate(Stream* stream, unsigned /*flags*/) {
  const Lock lock(TheState().mutex);
  const int error = BeginCallInContext("cuStreamCreate");
  if (error != kSuccess) return error;
  TheState().streams.push_back(std::make_unique<FakeStream>());
  TheState().streams.back()->device = fake_cuda::CurrentContext()->device;
  *stream = TheState().streams.back().get();
  ++TheState().num_streams;
  return kSuccess;
}

int cuStreamDestroy_v2(Stream stream) {
  const Lock lock(TheState().mutex);
  auto* const destroyed = static_cast<FakeStream*>(stream);
  RunUntil(destroyed, destroyed->num_enqueued);
  --TheState().num_streams;  // kept: events may point to it
  return BeginCall("cuStreamDestroy_v2");
}

int cuStreamSynchronize(Stream stream) {
  const Lock lock(TheState().mutex);
  const int error = BeginCallInContext("cuStreamSynchronize");
  if (error != kSuccess) return error;
  FakeStream* const awaited = fake_cuda::StreamOf(stream);
  RunUntil(awaited, awaited->num_enqueued);
  return kSuccess;
}

int cuEventCreate(Event* event, unsigned /*flags*/) {
  const Lock lock(TheState().mutex);
  const int error = BeginCallInContext("cuEventCreate");
  if (error != kSuccess) return error;
  *event = new FakeEvent;
  ++TheState().num_events;
  return kSuccess;
}

int cuEventDestroy_v2(Event event) {
  const Lock lock(TheState().mutex);
  delete static_cast<FakeEvent*>(event);
  --TheState().num_events;
  return BeginCall("cuEventDestroy_v2");
}

int cuEventRecord(Event event, Stream stream) {
  const Lock lock(TheState().mutex);
  const int error = BeginCallInContext("cuEventRecord");
  if (error != kSuccess) return error;
  FakeStream* const recorded = fake_cuda::StreamOf(stream);
  *static_cast<FakeEvent*>(event) = {recorded, recorded->num_enqueued, 0};
  return kSuccess;
}

int cuEventQuery(Event event) {
  const Lock lock(TheState().mutex);
  const int error = BeginCall("cuEventQuery");
  if (error != kSuccess) return error;
  auto* const asked = static_cast<FakeEvent*>(event);
  if (asked->stream == nullptr || asked->stream->num_run >= asked->position) {
    return kSuccess;
  }
  // The stream gets there between two questions.
  if (asked->stream->hangs || asked->num_asked++ < TheState().num_not_yet) {
    return kNotReady;
  }
  RunUntil(asked->stream, asked->position);
  return kSuccess;
}

int cuEventSynchronize(Event event) {
  const Lock lock(TheState().mutex);
  const int error = BeginCall("cuEventSynchronize");
  if (error != kSuccess) return error;
  const auto awaited = *static_cast<FakeEvent*>(event);
  if (awaited.stream != nullptr) RunUntil(awaited.stream, awaited.position);
  return kSuccess;
}

int cuMemcpyAsync(Pointer to, Pointer from, size_t size, Stream stream) {
  const Lock lock(TheState().mutex);
  const int error = BeginCallInContext("cuMemcpyAsync");
  if (error != kSuccess) return error;
  const int of_device =
      TheState().contexts[fake_cuda::StreamOf(stream)->device].copies_fail;
  if (of_device != kSuccess) return of_device;
  return fake_cuda::Copy(reinterpret_cast<void*>(to),
                         reinterpret_cast<void*>(from), size,
                         fake_cuda::StreamOf(stream));
}

int cuMemcpyDtoHAsync_v2(void* to, Pointer from, size_t size, Stream stream) {
  const Lock lock(TheState().mutex);
  const int error = BeginCallInContext("cuMemcpyDtoHAsync_v2");
  if (error != kSuccess) return error;
  return fake_cuda::Copy(to, reinterpret_cast<void*>(from), size,
                         fake_cuda::StreamOf(stream));
}

int cuMemcpyHtoDAsync_v2(Pointer to, const void* from, size_t size,
                         Stream stream) {
  const Lock lock(TheState().mutex);
  const int error = BeginCallInContext("cuMemcpyHtoDAsync_v2");
  if (error != kSuccess) return error;
  return fake_cuda::Copy(reinterpret_cast<void*>(to), from, size,
                         fake_cuda::StreamOf(stream));
}

// --- Controls ---------------------------------------------------------------

void agg_fake_cuda_launch(int device, void (*kernel)(void*), void* argument) {
  const Lock lock(TheState().mutex);
  fake_cuda::Enqueue(&TheState().contexts[device].default_stream,
                     [=] { kernel(argument); });
}

void agg_fake_cuda_fail_copies_of(int device, int code) {
  const Lock lock(TheState().mutex);
  TheState().contexts[device].copies_fail = code;
}

void agg_fake_cuda_finish(int device) {
  const Lock lock(TheState().mutex);
  FakeStream* const stream = &TheState().contexts[device].default_stream;
  RunUntil(stream, stream->num_enqueued);
}

void agg_fake_cuda_set_answers_before(int num_questions) {
  const Lock lock(TheState().mutex);
  TheState().num_not_yet = num_questions;
}

void agg_fake_cuda_hang(int device, int hangs) {
  const Lock lock(TheState().mutex);
  TheState().contexts[device].default_stream.hangs = hangs != 0;
  TheState().goes_on.notify_all();
}

}  // extern "C"

}  // namespace agg::cuda_abi
