// A handle of C is one of C++ on the heap, and says which kind it is.
#include "worker_client/c/agg_operation.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/shard_plan.h"
#include "server/base/field_error.h"
#include "server/base/status_macros.h"
#include "worker_client/agg_client.h"
#include "worker_client/c/c_calls.h"
#include "worker_client/c/c_structs.h"
#include "worker_client/client_types.h"
#include "worker_client/operation.h"
#include "worker_client/tensor_view.h"

struct agg_operation {
  explicit agg_operation(agg::Operation made) : operation(std::move(made)) {}
  explicit agg_operation(const agg::PullOperation& made)
      : operation(made), pull(made) {}
  explicit agg_operation(const agg::RoundOperation& made)
      : operation(made), pull(made), round(made) {}

  const int64_t process = getpid();
  agg::Operation operation;
  absl::optional<agg::PullOperation> pull;    // of what pulls
  absl::optional<agg::RoundOperation> round;  // of what has an outcome
  std::shared_ptr<agg::Reduction> reduction;  // of what reduces
};

namespace {

// Some views of the manifest's tensors, or all.
absl::StatusOr<std::vector<agg::TensorView>> SomeViews(
    const agg_client* client, const agg::Manifest& manifest,
    const uint64_t* tensors, const agg_view* views, size_t count) {
  auto read = client->rows.ViewsOf(tensors, views, count);
  if (!read.ok() || tensors == nullptr) return read;
  const std::vector<agg::TensorSpec>& specs = manifest.tensors;
  for (size_t i = 0; i < count; ++i) {
    if (tensors[i] >= specs.size()) {
      return agg::FieldError(absl::StrCat("tensors[", i, "]"),
                             absl::StrCat(tensors[i]),
                             absl::StrCat("0 to ", specs.size() - 1));
    }
    (*read)[i].name = specs[tensors[i]].name;
  }
  return read;
}

absl::Time DeadlineIn(double timeout) {
  if (!(timeout > 0.0)) return absl::InfinitePast();  // NaN, too
  return absl::Now() + absl::Seconds(timeout);
}

// Gives the handle to who wants one, unless the operation has failed already.
absl::Status Give(std::unique_ptr<agg_operation> made, agg_operation** out) {
  const absl::Status status = made->operation.Status();
  if (status.ok() && out != nullptr) *out = made.release();
  return status;
}

template <typename Operation>
absl::Status Give(const Operation& operation, agg_operation** out) {
  return Give(std::make_unique<agg_operation>(operation), out);
}

template <typename Call>
int32_t OfThisProcess(agg_operation* operation, const Call& call) {
  return agg::OfThisProcess(operation, "operation", call);
}

// What a call that begins an operation answers: with a handle in `*out` after
// AGG_OK, and with NULL there otherwise, so that it can be freed at any time.
template <typename Call>
int32_t Begun(agg_client* client, agg_operation** out, const Call& call) {
  if (out != nullptr) *out = nullptr;
  return agg::Connected(client, call);
}

}  // namespace

int32_t agg_start_push(agg_client* client, const uint64_t* tensors,
                       const agg_view* gradient, size_t count,
                       agg_operation** operation) {
  return Begun(client, operation, [&](agg::AggClient* connected) {
    AGG_ASSIGN_OR_RETURN(
        const auto views,
        SomeViews(client, connected->manifest(), tensors, gradient, count));
    return Give(connected->StartPush(views), operation);
  });
}

int32_t agg_start_commit(agg_client* client, const agg_push_info* info,
                         agg_operation** operation) {
  return Begun(client, operation, [&](agg::AggClient* connected) {
    AGG_ASSIGN_OR_RETURN(const auto read, agg::PushInfoOf(info));
    return Give(connected->StartCommit(read), operation);
  });
}

int32_t agg_start_pull(agg_client* client, uint64_t version,
                       const agg_target* parameters, size_t count,
                       int32_t full_precision, agg_operation** operation) {
  return Begun(client, operation, [&](agg::AggClient* connected) {
    AGG_ASSIGN_OR_RETURN(const auto targets, agg::TargetsOf(parameters, count));
    agg::PullOptions options;
    if (full_precision != 0) options.precision = agg::Precision::kFull;
    return Give(connected->StartPull(version, targets, options), operation);
  });
}

int32_t agg_start_round(agg_client* client, const uint64_t* tensors,
                        const agg_view* gradient, size_t count,
                        const agg_push_info* info, const agg_target* parameters,
                        size_t num_parameters, agg_operation** operation) {
  return Begun(client, operation, [&](agg::AggClient* connected) {
    AGG_ASSIGN_OR_RETURN(
        const auto views,
        SomeViews(client, connected->manifest(), tensors, gradient, count));
    AGG_ASSIGN_OR_RETURN(const auto read, agg::PushInfoOf(info));
    AGG_ASSIGN_OR_RETURN(const auto targets,
                         agg::TargetsOf(parameters, num_parameters));
    return Give(connected->StartRound(views, read, targets), operation);
  });
}

int32_t agg_start_reduce(agg_client* client, const char* what,
                         const double* values, size_t count,
                         agg_operation** operation) {
  return Begun(
      client, operation, [&](agg::AggClient* connected) -> absl::Status {
        if (what == nullptr) return agg::FieldError("what", "NULL", "a text");
        if (values == nullptr && count > 0) {
          return agg::FieldError("values", "NULL", "`count` values");
        }
        auto reduction = std::make_shared<agg::Reduction>();
        auto made = std::make_unique<agg_operation>(connected->StartReduce(
            what, absl::MakeConstSpan(values, count), reduction));
        made->reduction = std::move(reduction);
        return Give(std::move(made), operation);
      });
}

int32_t agg_operation_sums(agg_operation* operation, double* sums, size_t count,
                           const int32_t** ranks, size_t* num_ranks,
                           const int32_t** left_out, size_t* num_left_out) {
  return OfThisProcess(operation, [&]() -> absl::Status {
    if (operation->reduction == nullptr) {
      return absl::FailedPreconditionError("this operation reduces nothing");
    }
    AGG_RETURN_IF_ERROR(operation->operation.Wait());
    const agg::Reduction& made = *operation->reduction;
    if (sums == nullptr || count != made.sums.size()) {
      return agg::FieldError(sums == nullptr ? "sums" : "count",
                             sums == nullptr ? "NULL" : absl::StrCat(count),
                             absl::StrCat("room for ", made.sums.size()));
    }
    std::copy(made.sums.begin(), made.sums.end(), sums);
    if (ranks != nullptr) *ranks = made.ranks.data();
    if (num_ranks != nullptr) *num_ranks = made.ranks.size();
    if (left_out != nullptr) *left_out = made.left_out.data();
    if (num_left_out != nullptr) *num_left_out = made.left_out.size();
    return absl::OkStatus();
  });
}

int32_t agg_resume_round(agg_client* client, agg_operation** operation) {
  return Begun(
      client, operation, [&](agg::AggClient* connected) -> absl::Status {
        const auto cancelled = client->rounds.TakeCancelled();
        if (!cancelled.has_value()) {
          return absl::NotFoundError(
              "agg_interrupt has ended no agg_push_pull");
        }
        auto made =
            std::make_unique<agg_operation>(connected->ResumeRound(*cancelled));
        if (operation != nullptr) *operation = made.release();
        return absl::OkStatus();
      });
}

int32_t agg_operation_done(agg_operation* operation, double timeout) {
  bool done = true;
  OfThisProcess(operation, [&] {
    done = timeout > 0.0 ? operation->operation.WaitUntil(DeadlineIn(timeout))
                         : operation->operation.Done();
    return absl::OkStatus();
  });
  return done;
}

int32_t agg_operation_end(agg_operation* operation, agg_outcome* outcome) {
  return OfThisProcess(operation, [&]() -> absl::Status {
    if (operation->round.has_value()) {
      return agg::Answered(operation->round->Outcome(), outcome);
    }
    if (outcome == nullptr) return operation->operation.Wait();
    return agg::FieldError("outcome", "given",
                           "NULL, for what is no commit or round");
  });
}

int32_t agg_operation_await_tensor(agg_operation* operation, const char* name,
                                   double timeout) {
  return OfThisProcess(operation, [&]() -> absl::Status {
    if (name == nullptr) return agg::FieldError("name", "NULL", "a tensor's");
    if (!operation->pull.has_value()) {
      return absl::FailedPreconditionError("this operation pulls no tensors");
    }
    return operation->pull->WaitForTensor(name, DeadlineIn(timeout));
  });
}

int32_t agg_operation_cancel(agg_operation* operation) {
  return OfThisProcess(operation, [&] {
    operation->operation.Cancel();
    return absl::OkStatus();
  });
}

void agg_operation_free(agg_operation* operation) {
  if (operation == nullptr || getpid() != operation->process) return;
  agg::NoThrow([&] {
    delete operation;
    return absl::OkStatus();
  });
}
