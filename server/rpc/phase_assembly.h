// A phase put together from the messages in which it travels. Apart from the
// other direction: here nothing that is read is believed.
#ifndef AGG_SERVER_RPC_PHASE_ASSEMBLY_H_
#define AGG_SERVER_RPC_PHASE_ASSEMBLY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/control.pb.h"
#include "server/round/phase.h"

namespace agg {

// Thread-compatible.
class PhaseAssembly {
 public:
  // Adds the first message, then the later ones. INVALID_ARGUMENT: none of the
  // phases, a later message of another phase than the first, or a field's
  // value; RESOURCE_EXHAUSTED: more than any job needs.
  absl::Status Add(const v1::PhaseRequest& request);
  // The phase of the messages so far; its record comes with Take.
  const Phase& phase() const { return phase_; }
  // Takes all of it. To be called once, and last.
  Phase Take();

 private:
  absl::Status Begin(const v1::PhaseRequest& request);
  absl::Status Append(const v1::PhaseRequest& request);
  absl::Status CheckSize() const;

  Phase phase_;
  std::string record_;
  v1::PhaseRequest::PhaseCase kind_ = v1::PhaseRequest::PHASE_NOT_SET;
  int64_t num_bytes_ = 0;  // of all messages
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_PHASE_ASSEMBLY_H_
