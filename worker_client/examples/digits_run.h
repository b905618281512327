// What digits_worker does, with its flags (--coordinator, --rank, --data and so
// on), for programs that change a part of it.
#ifndef AGG_WORKER_CLIENT_EXAMPLES_DIGITS_RUN_H_
#define AGG_WORKER_CLIENT_EXAMPLES_DIGITS_RUN_H_

#include "absl/flags/declare.h"
#include "absl/status/status.h"
#include "worker_client/examples/digits_trainer.h"

ABSL_DECLARE_FLAG(int, rank);

namespace agg {

// Trains as one worker of the quickstart. Rank 0 prints a JSON line per round
// and one at the end, undefined numbers as null; the others print nothing.
// Events of the job, such as what is waited for, go to stderr.
// INVALID_ARGUMENT names the flag; else the job's error, or that of a file.
absl::Status RunDigitsWorker(SpoilGradient spoil = nullptr);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_EXAMPLES_DIGITS_RUN_H_
