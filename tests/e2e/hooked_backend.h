// A backend that does as another one does, after calling a test's hook.
#ifndef AGG_TESTS_E2E_HOOKED_BACKEND_H_
#define AGG_TESTS_E2E_HOOKED_BACKEND_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"
#include "server/shard/guarded_backend.h"

namespace agg {

// Called on the thread that calls the backend. Null: none.
struct BackendHooks {
  std::function<void()> before_gram;
  std::function<void()> before_norms;
  std::function<void()> before_update;
};

class HookedBackend : public GuardedBackend {
 public:
  HookedBackend(std::unique_ptr<Backend> backend, BackendHooks hooks)
      : GuardedBackend(backend.get()),
        backend_(std::move(backend)),
        hooks_(std::move(hooks)) {}

  absl::Status Gram(const GramRequest& request) override {
    if (hooks_.before_gram != nullptr) hooks_.before_gram();
    return GuardedBackend::Gram(request);
  }
  absl::Status Update(const UpdateRequest& request) override {
    if (hooks_.before_update != nullptr) hooks_.before_update();
    return GuardedBackend::Update(request);
  }
  absl::Status Norms(const UpdateRequest& request,
                     absl::Span<RangeNorms> norms) override {
    if (hooks_.before_norms != nullptr) hooks_.before_norms();
    return GuardedBackend::Norms(request, norms);
  }

 private:
  const std::unique_ptr<Backend> backend_;
  const BackendHooks hooks_;
};

}  // namespace agg

#endif  // AGG_TESTS_E2E_HOOKED_BACKEND_H_
