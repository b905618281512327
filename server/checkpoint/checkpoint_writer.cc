// The thread of CheckpointWriter and the handing over of the copy. One thread
// and not one for each checkpoint: a disk that is too slow must not collect
// them.
#include "server/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/process_memory.h"
#include "server/base/status_macros.h"
#include "server/checkpoint/part_layout.h"

namespace agg {

absl::StatusOr<std::unique_ptr<CheckpointWriter>> CheckpointWriter::Create(
    CheckpointFolder folder, const ShardArrays& arrays) {
  std::vector<float> copy;
  AGG_RETURN_IF_ERROR(
      TryResize(arrays.num_arrays * arrays.num_elements, &copy));
  return std::unique_ptr<CheckpointWriter>(
      new CheckpointWriter(std::move(folder), arrays, std::move(copy)));
}

CheckpointWriter::CheckpointWriter(CheckpointFolder folder,
                                   const ShardArrays& arrays,
                                   std::vector<float> copy)
    : folder_(std::move(folder)),
      arrays_(arrays),
      position_(arrays_.plan.slices.size()),
      copy_(std::move(copy)) {
  const std::vector<int32_t>& slices =
      arrays_.plan.slices_of_shard[arrays_.ordinal];
  for (size_t i = 0; i < slices.size(); ++i) position_[slices[i]] = i;
  thread_ = std::thread([this] { Loop(); });
}

CheckpointWriter::~CheckpointWriter() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

absl::Status CheckpointWriter::Capture(const CheckpointId& id,
                                       const CopyArray& copy) {
  {
    MutexLock lock(&mutex_);
    if (progress_.stage == CheckpointProgress::Stage::kWriting) {
      ++progress_.num_skipped;
      return absl::FailedPreconditionError(
          absl::StrCat("checkpoint ", CheckpointFolderName(progress_.id),
                       " is still being written"));
    }
    progress_.stage = CheckpointProgress::Stage::kWriting;
    progress_.id = id;
    discards_ = false;
  }
  // Nobody else has the copy while the stage is kWriting and copied_ is false.
  const absl::Status status = CopyAll(copy);
  if (!status.ok()) {
    Finish(status, /*stays=*/true);  // nothing is written yet
    return status;
  }
  MutexLock lock(&mutex_);
  copied_ = true;
  changed_.NotifyAll();
  return status;
}

absl::Status CheckpointWriter::Discard(const CheckpointId& id) {
  {
    MutexLock lock(&mutex_);
    if (!(progress_.id == id)) return absl::OkStatus();
    if (progress_.stage == CheckpointProgress::Stage::kWriting) {
      discards_ = true;
      return absl::OkStatus();
    }
    // A capture of the same version is no repeat of this one.
    progress_.stage = CheckpointProgress::Stage::kNone;
    if (was_there_) return absl::OkStatus();
  }
  return folder_.Discard(id, PartFile());
}

absl::Status CheckpointWriter::CopyAll(const CopyArray& copy) {
  const auto num_elements = static_cast<size_t>(arrays_.num_elements);
  for (int array = 0; array < arrays_.num_arrays; ++array) {
    AGG_RETURN_IF_ERROR(copy(
        array, absl::MakeSpan(copy_).subspan(
                   static_cast<size_t>(array) * num_elements, num_elements)));
  }
  return absl::OkStatus();
}

CheckpointProgress CheckpointWriter::progress() const {
  MutexLock lock(&mutex_);
  return progress_;
}

void CheckpointWriter::Loop() {
  for (;;) {
    CheckpointId id;
    {
      MutexLock lock(&mutex_);
      while (!copied_ && !stopped_) changed_.Wait(&mutex_);
      if (stopped_) return;
      id = progress_.id;
      copied_ = false;
    }
    const bool was_there = folder_.MayHavePart(id, PartFile());
    {
      MutexLock lock(&mutex_);
      was_there_ = was_there;
    }
    const absl::StatusOr<CheckpointPart> part = Write(id);
    // Else each try on a disk that is full on another shard would leave a part.
    if (!Finish(part, /*stays=*/was_there)) {
      folder_.Discard(id, PartFile()).IgnoreError();
      Finish(part, /*stays=*/true);
    }
  }
}

bool CheckpointWriter::Finish(const absl::StatusOr<CheckpointPart>& part,
                              bool stays) {
  MutexLock lock(&mutex_);
  if (!stays && (discards_ || !part.ok())) return false;
  progress_.stage = part.ok() ? CheckpointProgress::Stage::kWritten
                              : CheckpointProgress::Stage::kFailed;
  if (part.ok() && discards_) {
    progress_.stage = CheckpointProgress::Stage::kNone;
  }
  progress_.part = part.ok() ? *part : CheckpointPart();
  progress_.error = part.status();
  return true;
}

absl::StatusOr<CheckpointPart> CheckpointWriter::Write(const CheckpointId& id) {
  AGG_RETURN_IF_ERROR(CheckFinite());
  PartSource source;
  source.plan = &arrays_.plan;
  source.ordinal = arrays_.ordinal;
  source.num_arrays = arrays_.num_arrays;
  source.values = [this](int32_t slice, int array) {
    return SliceOf(position_[slice], array);
  };
  return folder_.WritePart(id, source);
}

absl::Status CheckpointWriter::CheckFinite() const {
  const std::vector<int32_t>& slices =
      arrays_.plan.slices_of_shard[arrays_.ordinal];
  for (size_t i = 0; i < slices.size(); ++i) {
    const absl::Span<const float> values = Values(i, /*array=*/0);
    if (std::all_of(values.begin(), values.end(),
                    [](float value) { return std::isfinite(value); })) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "parameters of tensor ", arrays_.plan.slices[slices[i]].tensor,
        " (counted from 0 in the manifest's order) are not finite"));
  }
  return absl::OkStatus();
}

absl::Span<const float> CheckpointWriter::Values(size_t position,
                                                 int array) const {
  const int32_t index = arrays_.plan.slices_of_shard[arrays_.ordinal][position];
  return absl::MakeConstSpan(copy_).subspan(
      static_cast<size_t>(array * arrays_.num_elements +
                          arrays_.slice_begins[position]),
      static_cast<size_t>(arrays_.plan.slices[index].num_elements));
}

absl::StatusOr<absl::Span<const float>> CheckpointWriter::SliceOf(
    size_t position, int array) {
  {
    MutexLock lock(&mutex_);
    if (stopped_) return absl::CancelledError("the shard is shutting down");
  }
  return Values(position, array);
}

}  // namespace agg
