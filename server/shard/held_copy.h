// One part's copy in this process, as what is known about it: which version it
// is at, and whether it is prepared for the next one (P15, P17). The arrays are
// elsewhere: home and replica have different ones.
#ifndef AGG_SERVER_SHARD_HELD_COPY_H_
#define AGG_SERVER_SHARD_HELD_COPY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "server/round/recovery.h"

namespace agg {

// What the coordinator must not forget, as its own text; null: none.
using RecordText = std::shared_ptr<const std::string>;

// Void -> held -> prepared by an epoch, in part and then whole -> held at the
// next version. Thread-compatible: its owner's lock protects it.
class HeldCopy {
 public:
  explicit HeldCopy(int32_t part) { state_.part = part; }

  bool held() const { return held_; }  // false: void
  // Version that the copy is at; for a void copy, where it was last.
  const VersionId& id() const { return state_.id; }
  bool At(const VersionId& id) const { return held_ && state_.id == id; }
  bool prepared() const { return state_.prepared_by != 0; }
  bool whole() const { return state_.whole; }
  // REQUIRES: held().
  const CopyState& state() const { return state_; }
  // Record of the version that the copy is at. Part 0 alone has one.
  const RecordText& record() const { return record_; }

  // Notes that the arrays are those of `id`: a seed, or what was loaded or
  // fetched.
  void Hold(const VersionId& id, RecordText record);
  // Notes that something of the next version is there from now on.
  void BeginPrepare(uint64_t epoch);
  // Notes that all of it is there. `record`: of the next version.
  void EndPrepare(RecordText record);
  // Notes that the arrays are those of the next version now. REQUIRES: whole().
  void Step();
  // Forgets what was prepared: the copy stays where it is.
  void Drop();
  void Void();

  // OK if Step leads to `target`; else FAILED_PRECONDITION.
  absl::Status CheckStep(const VersionId& target) const;
  // "part 2 is at version 5 (made by epoch 7), prepared by epoch 8".
  std::string Describe() const;

 private:
  bool held_ = false;
  CopyState state_;
  RecordText record_;
  RecordText next_record_;
};

// "version 5 (made by epoch 7)".
std::string DescribeVersion(const VersionId& id);

}  // namespace agg

#endif  // AGG_SERVER_SHARD_HELD_COPY_H_
