// Finds the library's controls by their names.
#include "tests/kernels/device_memory/fake_cuda.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace agg::fake_cuda {
namespace {

// Whichever file of it this process has opened already, or kFakeCudaPath.
void* Library() {
  static void* const library = [] {
    const char* const named = std::getenv("AGG_CUDA_DRIVER");
    return dlopen(named == nullptr ? kFakeCudaPath : named,
                  RTLD_NOW | RTLD_LOCAL);
  }();
  return library;
}

template <class Function>
Function* Find(const char* name) {
  void* const symbol = Library() == nullptr ? nullptr : dlsym(Library(), name);
  if (symbol == nullptr) {
    std::fprintf(stderr, "no %s: %s\n", name, dlerror());
    std::abort();
  }
  return reinterpret_cast<Function*>(symbol);
}

}  // namespace

char* Alloc(int64_t num_bytes, int device) {
  return static_cast<char*>(
      Find<void*(int, int64_t)>("agg_fake_cuda_alloc_on")(device, num_bytes));
}

void Free(void* memory) { Find<int(void*)>("agg_fake_cuda_free")(memory); }

void Launch(int device, std::function<void()> kernel) {
  const auto run = [](void* argument) {
    auto* const work = static_cast<std::function<void()>*>(argument);
    (*work)();
    delete work;
  };
  Find<void(int, void (*)(void*), void*)>("agg_fake_cuda_launch")(
      device, run, new std::function<void()>(std::move(kernel)));
}

void SetAnswersBefore(int num_questions) {
  Find<void(int)>("agg_fake_cuda_set_answers_before")(num_questions);
}

void Hang(int device, bool hangs) {
  Find<void(int, int)>("agg_fake_cuda_hang")(device, hangs ? 1 : 0);
}

void Finish(int device) { Find<void(int)>("agg_fake_cuda_finish")(device); }

void Fail(const std::string& name, int code) {
  Find<void(const char*, int)>("agg_fake_cuda_fail")(name.c_str(), code);
}

int64_t NumCalls(const std::string& name) {
  return Find<int64_t(const char*)>("agg_fake_cuda_calls")(name.c_str());
}

void FailHostCopies(int code) {
  Fail("cuMemcpyDtoHAsync_v2", code);
  Fail("cuMemcpyHtoDAsync_v2", code);
}

void FailCopiesOf(int device, int code) {
  Find<void(int, int)>("agg_fake_cuda_fail_copies_of")(device, code);
}

int64_t NumHostCopies() {
  return NumCalls("cuMemcpyDtoHAsync_v2") + NumCalls("cuMemcpyHtoDAsync_v2");
}

int64_t NumLive() { return Find<int64_t()>("agg_fake_cuda_num_live")(); }

int64_t NumCurrent() { return Find<int64_t()>("agg_fake_cuda_num_current")(); }

void SetUuid(const std::string& bytes) {
  Find<void(const char*)>("agg_fake_cuda_set_uuid")(bytes.c_str());
}

void SetNumDevices(int count) {
  Find<void(int)>("agg_fake_cuda_set_devices")(count);
}

void SetShares(bool shares) {
  Find<void(int)>("agg_fake_cuda_set_shares")(shares ? 1 : 0);
}

void SetPointersWantContext(bool want) {
  Find<void(int)>("agg_fake_cuda_set_pointers_want_context")(want ? 1 : 0);
}

void SetCaptures(bool captures) {
  Find<void(int)>("agg_fake_cuda_set_captures")(captures ? 1 : 0);
}

int64_t NumUnsafe() { return Find<int64_t()>("agg_fake_cuda_num_unsafe")(); }

void SetPeers(bool peers) {
  Find<void(int)>("agg_fake_cuda_set_peers")(peers ? 1 : 0);
}

}  // namespace agg::fake_cuda
