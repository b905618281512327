// A backend that does as another one does, after calling a test's hook.
#ifndef AGG_TESTS_E2E_HOOKED_BACKEND_H_
#define AGG_TESTS_E2E_HOOKED_BACKEND_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"

namespace agg {

// Called on the thread that calls the backend. Null: none.
struct BackendHooks {
  std::function<void()> before_gram;
  std::function<void()> before_norms;
  std::function<void()> before_update;
};

class HookedBackend : public Backend {
 public:
  HookedBackend(std::unique_ptr<Backend> backend, BackendHooks hooks)
      : backend_(std::move(backend)), hooks_(std::move(hooks)) {}

  absl::string_view name() const override { return backend_->name(); }
  std::string description() const override { return backend_->description(); }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(BufferUse use,
                                                   int64_t num_bytes) override {
    return backend_->Allocate(use, num_bytes);
  }
  void RowLanded(const Buffer& row, DType dtype,
                 const ElementRange& range) override {
    backend_->RowLanded(row, dtype, range);
  }
  absl::Status Load(const OptimizerOptions& optimizer, const Buffer& snapshot,
                    Buffer* master, Buffer* state0, Buffer* state1,
                    Buffer* narrowed_snapshot, DType narrowed_dtype) override {
    return backend_->Load(optimizer, snapshot, master, state0, state1,
                          narrowed_snapshot, narrowed_dtype);
  }
  absl::Status Gram(const GramRequest& request) override {
    if (hooks_.before_gram != nullptr) hooks_.before_gram();
    return backend_->Gram(request);
  }
  absl::Status Update(const UpdateRequest& request) override {
    if (hooks_.before_update != nullptr) hooks_.before_update();
    return backend_->Update(request);
  }
  absl::Status Norms(const UpdateRequest& request,
                     absl::Span<RangeNorms> norms) override {
    if (hooks_.before_norms != nullptr) hooks_.before_norms();
    return backend_->Norms(request, norms);
  }

 private:
  const std::unique_ptr<Backend> backend_;
  const BackendHooks hooks_;
};

}  // namespace agg

#endif  // AGG_TESTS_E2E_HOOKED_BACKEND_H_
