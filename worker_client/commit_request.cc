// PushInfo's fields, one by one: what was not given is left out.
#include "worker_client/commit_request.h"

namespace agg {

v1::CommitRequest CommitOf(const RowName& row, const PushInfo& info) {
  v1::CommitRequest request;
  request.set_kind(v1::GRADIENT);
  request.set_round(row.round);
  request.set_attempt(row.attempt);
  request.set_examples(info.examples);
  request.set_accumulation(info.accumulation);
  if (info.micro_norm_squared_sum.has_value()) {
    request.set_micro_norm_squared_sum(*info.micro_norm_squared_sum);
  }
  if (info.loss.has_value()) request.set_loss(*info.loss);
  request.set_loss_scale(info.loss_scale);
  request.set_parameters_digest(info.parameters_digest);
  return request;
}

}  // namespace agg
