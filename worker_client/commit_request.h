// The message that commits a row.
#ifndef AGG_WORKER_CLIENT_COMMIT_REQUEST_H_
#define AGG_WORKER_CLIENT_COMMIT_REQUEST_H_

#include "proto/agg.pb.h"
#include "worker_client/client_types.h"
#include "worker_client/row_custody.h"

namespace agg {

// But for the epoch, the session, the row's sums, the tensors that it lacks and
// the traceparent.
v1::CommitRequest CommitOf(const RowName& row, const PushInfo& info);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_COMMIT_REQUEST_H_
