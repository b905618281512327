// A process that decides an external rule of a job (P52 of proto/README.md):
// it gets each round's Gram matrices, and gives the weights.
//
//   auto server = RuleServer::Create(options, "external");
//   while (true) {
//     auto round = (*server)->Next(absl::Seconds(1));
//     if (!round.ok() || ((*round).has_value() && (*round)->finished)) break;
//     if ((*round).has_value()) (*server)->Answer(Decide(**round));
//   }
#ifndef AGG_WORKER_CLIENT_RULE_SERVER_H_
#define AGG_WORKER_CLIENT_RULE_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "worker_client/client_types.h"

namespace agg {

// A round to decide about: a plain value. Rows are in the order of the ranks;
// those that are left out of the round are not among them.
struct RuleRound {
  struct Segment {
    std::string tensor;        // its name; "": the whole model
    std::vector<double> gram;  // P x P, row by row, without loss scales
    std::string state;         // that the last applied decision has left
  };
  bool finished = false;  // the job: nothing else is set
  uint64_t epoch = 0;
  uint64_t round = 0;
  bool shadow = false;  // the weights are compared, not applied
  std::vector<int32_t> ranks;
  std::vector<int64_t> examples;
  std::vector<int32_t> accumulation;
  std::vector<double> losses;     // NaN: the worker has sent none
  std::vector<Segment> segments;  // one, or one for each tensor
};

// What is decided about it. The server refuses what does not fit.
struct RuleDecision {
  struct Segment {
    std::vector<double> weights;  // P, finite: the result is their sum of rows
    std::string state;            // for the next round
  };
  std::vector<Segment> segments;  // as the round has them
  double step_scale = 1.0;        // multiplies the learning rate; finite, > 0
};

// Thread-compatible.
class RuleServer {
 public:
  // Connects when first used. Of the options coordinator, client_name,
  // connect_timeout, recovery_window, tls and token_file count. `name`: of the
  // rule, combination.external.name. INVALID_ARGUMENT as AggClient::Connect.
  static absl::StatusOr<std::unique_ptr<RuleServer>> Create(
      ClientOptions options, const std::string& name);
  ~RuleServer();
  RuleServer(const RuleServer&) = delete;
  RuleServer& operator=(const RuleServer&) = delete;

  // Gives the answer to the last round, if there is one, and waits for the next
  // round for up to `timeout`; nothing: none came. The same round comes again
  // until it is answered, or over.
  //
  // A lost connection is tried again for recovery_window, until the first
  // answer of the coordinator for connect_timeout: then UNAVAILABLE.
  // INVALID_ARGUMENT: the last answer does not fit, and says how; the round had
  // its fallback, and Next may be called again. ABORTED: another process
  // decides this rule now. PERMISSION_DENIED, UNAUTHENTICATED: P45.
  absl::StatusOr<absl::optional<RuleRound>> Next(absl::Duration timeout);

  // Sets the answer to the last round, which goes out with Next.
  // FAILED_PRECONDITION: no round is open. INVALID_ARGUMENT: the step_scale;
  // the round stays open.
  absl::Status Answer(const RuleDecision& decision);
  // Says why there are no weights: the round has its fallback at once.
  absl::Status Fail(const std::string& why);

 private:
  class Impl;
  explicit RuleServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_RULE_SERVER_H_
