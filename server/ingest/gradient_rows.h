// Landing memory of gradient rows: one buffer per rank, made when the rank
// first joins, and used by all later sessions of the rank, until one session
// gets it for itself.
#ifndef AGG_SERVER_INGEST_GRADIENT_ROWS_H_
#define AGG_SERVER_INGEST_GRADIENT_ROWS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "server/base/mutex.h"
#include "server/ingest/frame.h"
#include "server/ingest/shard_layout.h"

namespace agg {

// A rank's row is common to its sessions, of which one at a time pushes. What a
// worker's process may write itself (P39) is granted to one session: no other
// one ever has its row there, since a process that was frozen may thaw in the
// midst of a copy. Thread-safe; a buffer stays where it is as long as somebody
// has a reference.
class GradientRows {
 public:
  // `backend` and `layout` outlive it.
  GradientRows(Backend* backend, const ShardLayout* layout, DType dtype,
               int32_t max_workers);

  // Memory for a row. All of it is touched (and pinned, for a device), so this
  // may take long; it needs no lock. Errors are those of Backend::Allocate.
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate() const;
  int64_t row_bytes() const;

  // Makes it the rank's common row, unless it has one: then gives it back.
  std::unique_ptr<Buffer> Add(int32_t rank, std::unique_ptr<Buffer> buffer);
  bool HasCommon(int32_t rank) const;
  bool HasGranted(int32_t rank) const;  // to any session
  // Ranks with memory, of whichever kind.
  int64_t num_rows() const;
  // Granted rows besides the first one of each rank.
  int64_t num_successors() const;

  // Where the session's row is: what is granted to it, else the common row;
  // null if there is neither.
  std::shared_ptr<const Buffer> Find(int32_t rank, uint64_t session) const;
  // Grants the common row to the session; again: the same. Null: there is none.
  std::shared_ptr<const Buffer> Grant(int32_t rank, uint64_t session);
  bool Granted(int32_t rank, uint64_t session) const;
  // Forgets what is granted to sessions of the rank that are not `kept`; what
  // that was, by session.
  std::map<uint64_t, std::shared_ptr<const Buffer>> Keep(
      int32_t rank, const std::function<bool(uint64_t session)>& kept);

  // Copies the bytes of the session's row, which are those of this attempt, for
  // who reads them by that name: from here on the row may take another attempt
  // (P44). Of a rank one is parked, the newest. Only where rows are on the
  // host. Errors are those of Backend::Allocate.
  absl::Status Park(int32_t rank, uint64_t session, uint32_t attempt);
  void Unpark();  // all of them
  // The bytes of this gradient: parked ones, else as Find.
  std::shared_ptr<const Buffer> FindAttempt(int32_t rank, uint64_t session,
                                            uint32_t attempt) const;

  // The byte of a row where the elements of a slice (its position in the
  // layout) begin.
  int64_t SliceOffset(int32_t slice) const;
  // Where the slice lands in one of these rows.
  SlicePlace PlaceIn(const Buffer& row, int32_t slice) const;
  // Makes all its values zero.
  void Clear(const Buffer& row, int32_t slice) const;

 private:
  struct Row {
    std::shared_ptr<const Buffer> common;
    std::map<uint64_t, std::shared_ptr<const Buffer>> granted;  // by session
    std::shared_ptr<const Buffer> parked;
    uint64_t parked_session = 0;  // whose bytes they are
    uint32_t parked_attempt = 0;
  };

  Backend* const backend_;
  const ShardLayout* const layout_;
  const DType dtype_;
  mutable Mutex mutex_;
  std::vector<Row> rows_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_INGEST_GRADIENT_ROWS_H_
