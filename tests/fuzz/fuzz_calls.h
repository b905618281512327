// The calls of all clients of a fuzzed job, and what moves them.
#ifndef AGG_TESTS_FUZZ_FUZZ_CALLS_H_
#define AGG_TESTS_FUZZ_FUZZ_CALLS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tests/fuzz/fake_call.h"

namespace agg {

// Not thread-safe.
class FuzzCalls {
 public:
  // `settle` does what the server has to do; whether that was anything.
  explicit FuzzCalls(std::function<bool()> settle)
      : settle_(std::move(settle)) {}
  ~FuzzCalls();

  // Moves calls and server until nothing moves any more. A call that is done is
  // forgotten.
  void Settle();

  // Begins a call and settles. `handler` as FakeUnary's.
  template <typename Reply, typename Request, typename Handler>
  std::shared_ptr<FakeUnary<Request, Reply>> Unary(const std::string& token,
                                                   Request request,
                                                   Handler handler) {
    auto call = std::make_shared<FakeUnary<Request, Reply>>(
        token, std::move(request), handler);
    Add(call);
    return call;
  }
  // Takes one that has begun, and settles.
  void Add(std::shared_ptr<FakeCall> call);

  // Settles until the call is done, which another thread of the server may have
  // to see to. Traps if that takes longer than kPatience.
  void AwaitDone(const FakeCall& call);

  // Those that are not done, oldest first.
  size_t num_open() const { return open_.size(); }
  FakeCall* open(size_t i) { return open_[i % open_.size()].get(); }

  // All clients go. Traps if a call does not end within kPatience then.
  void CancelAll();

 private:
  // Of wall time, on a slow machine under a sanitizer.
  static constexpr absl::Duration kPatience = absl::Seconds(40);

  const std::function<bool()> settle_;
  std::vector<std::shared_ptr<FakeCall>> open_;
};

}  // namespace agg

#endif  // AGG_TESTS_FUZZ_FUZZ_CALLS_H_
