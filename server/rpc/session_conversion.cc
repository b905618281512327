// Field by field, and nothing else: the service checks the texts.
#include "server/rpc/session_conversion.h"

namespace agg {

v1::SetSessionRequest ToProto(uint64_t epoch, const SessionChange& change) {
  v1::SetSessionRequest request;
  request.set_epoch(epoch);
  request.set_session(change.session);
  request.set_rank(change.rank);
  request.set_replaces(change.replaces);
  request.set_keep_row(change.keep_row);
  request.set_remove(change.remove);
  request.set_seed_role(change.seed_role);
  request.set_evicted(change.evicted);
  request.set_reason(change.reason);
  request.set_finished(change.finished);
  request.set_first_round(change.first_round);
  request.set_client(change.client);
  request.set_identity(change.identity);
  return request;
}

SessionChange FromProto(const v1::SetSessionRequest& request) {
  SessionChange change;
  change.session = request.session();
  change.rank = request.rank();
  change.replaces = request.replaces();
  change.keep_row = request.keep_row();
  change.remove = request.remove();
  change.seed_role = request.seed_role();
  change.evicted = request.evicted();
  change.reason = request.reason();
  change.finished = request.finished();
  change.first_round = request.first_round();
  change.client = request.client();
  change.identity = request.identity();
  return change;
}

}  // namespace agg
