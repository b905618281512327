// Sends waves of chunks to the kernels. The snapshot goes to the host piece
// by piece, on a second stream, while later pieces are computed.
#include "kernels/cuda/cuda_update.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/args_block.h"
#include "kernels/cuda/chunk_plan.h"
#include "kernels/cuda/cuda_buffer.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/snapshot_copies.h"
#include "kernels/cuda/update_kernel.h"
#include "kernels/optimizer_step.h"
#include "kernels/row_format.h"
#include "kernels/step_constants.h"
#include "kernels/step_formula.h"

namespace agg::cuda {

namespace {

// Which call the waves are launched for.
enum class Work : uint8_t { kUpdate, kCombine, kStep, kNorms };

class UpdateRun {
 public:
  UpdateRun(const UpdateRequest& request, Work work, CudaScratch* scratch)
      : request_(request), work_(work), scratch_(*scratch) {
    if (work != Work::kStep) {  // whose rows may be gone
      for (const Buffer* row : request.rows) rows_.push_back(DeviceOf(row));
    }
    launch_.num_rows = static_cast<int>(rows_.size());
    launch_.dtype = static_cast<int>(request.dtype);
    if (request.dtype == DType::kI8 && !rows_.empty()) {
      launch_.scale_offset = ScaleOffset(request.rows[0]->num_bytes(), 0);
    }
    launch_.formula = ChooseFormula(request.optimizer);
    launch_.num_states = OptimizerStateArrays(request.optimizer);
    if (work == Work::kCombine || work == Work::kStep) {
      // Pinned memory has this address for kernels, too.
      launch_.combined = reinterpret_cast<float*>(request.combined->host());
    }
    if (work == Work::kCombine) return;
    launch_.master = FloatsOf(request.master);
    launch_.state0 = FloatsOf(request.state0);
    launch_.state1 = FloatsOf(request.state1);
  }

  absl::Status PlanWaves(std::vector<Wave>* waves) {
    const auto num_rows = static_cast<int64_t>(rows_.size());
    const int64_t max_slots = UpdateWaveSlots(num_rows);
    if (max_slots < 1) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the arguments of ", num_rows, " rows take more than ",
                       kArgsBytes, " bytes"));
    }
    JoinRanges();
    // Sums of norms must not depend on what else is done.
    const bool few = work_ == Work::kNorms || CopiesInWaves();
    *waves = cuda::PlanWaves(
        ranges_, few ? kUpdateWaveChunks : kMaxUpdateChunks, max_slots);
    return absl::OkStatus();
  }

  // The arguments of a wave's kernel.
  void PrepareWave(const Wave& wave, ArgsBlock* args, UpdateLaunch* launch) {
    std::vector<StepConstants> constants;
    std::vector<double> coefficients;
    for (const int64_t r : wave.slot_ranges) {
      const UpdateRange& update = *updates_[r];
      if (work_ != Work::kCombine) {
        constants.push_back(MakeStepConstants(
            request_.optimizer, request_.step, update.learning_rate,
            update.weight_decay, work_ == Work::kNorms ? 1.0f : update.trust));
      }
      if (work_ != Work::kStep) {
        coefficients.insert(coefficients.end(), update.coefficients.begin(),
                            update.coefficients.end());
      }
    }
    *launch = launch_;
    InlineArgs* const inlined = &launch->args;
    launch->rows = args->Append(absl::MakeConstSpan(rows_), inlined);
    AppendChunks(wave, args, launch);
    launch->constants = args->Append(absl::MakeConstSpan(constants), inlined);
    launch->coefficients =
        args->Append(absl::MakeConstSpan(coefficients), inlined);
  }

  // Of all calls but Norms. `narrowed` as in cuda_update.h.
  absl::Status Run(uint16_t* narrowed) {
    std::vector<Wave> waves;
    absl::Status status = PlanWaves(&waves);
    if (!status.ok()) return status;
    if (request_.narrowed_snapshot != nullptr && work_ != Work::kCombine) {
      launch_.narrowed = narrowed;
      launch_.narrowed_dtype = static_cast<int>(request_.narrowed_dtype);
    }
    // One flag for all waves, where Gram's and Norms' sums are: the backend
    // does one thing at a time. The kernels write it over the bus, if ever.
    if (ChecksFinite()) {
      launch_.not_finite = reinterpret_cast<int*>(scratch_.host_sums.get());
      *launch_.not_finite = 0;
    }
    status = scratch_.snapshots->WaitToWrite(launch_.master,  // null: none
                                             scratch_.compute.get());
    for (size_t w = 0; w < waves.size() && status.ok(); ++w) {
      status = RunWave(waves, w);
    }
    bool deferred = false;
    if (status.ok() && MayDefer()) status = DownloadLater(waves, &deferred);
    // After an error, too: the caller may free what is still being copied.
    const absl::Status finished = Finish(status.ok(), deferred);
    if (status.ok()) status = finished;
    if (!status.ok()) return status;
    if (deferred) *request_.snapshot_deferred = true;
    if (ChecksFinite()) *request_.all_finite = *launch_.not_finite == 0;
    return absl::OkStatus();
  }

  absl::Status Norms(absl::Span<RangeNorms> norms) {
    std::vector<Wave> waves;
    absl::Status status = PlanWaves(&waves);
    if (!status.ok()) return status;
    for (RangeNorms& sum : norms) sum = RangeNorms();
    for (const Wave& wave : waves) {
      status = NormsOfWave(wave, norms);
      if (!status.ok()) return status;
    }
    for (RangeNorms& sum : norms) {
      sum.parameter_norm_squared = Canonical(sum.parameter_norm_squared);
      sum.update_norm_squared = Canonical(sum.update_norm_squared);
    }
    return absl::OkStatus();
  }

 private:
  static double Canonical(double value) {
    return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
  }

  // Makes one range of neighbours that are treated alike, as the slices of a
  // tensor mostly are: fewer arguments fit into the launch. Where chunks begin
  // stays the same.
  void JoinRanges() {
    for (const UpdateRange& update : request_.ranges) {
      if (!ranges_.empty() && work_ != Work::kNorms &&
          Continues(*updates_.back(), ranges_.back(), update)) {
        ranges_.back().num_elements += update.range.num_elements;
        continue;
      }
      ranges_.push_back(update.range);
      updates_.push_back(&update);
    }
  }

  // Whether `next` lies right behind `range`, whose elements are treated as
  // those of `update`.
  static bool Continues(const UpdateRange& update, const ElementRange& range,
                        const UpdateRange& next) {
    return range.num_elements % kChunkElements == 0 &&
           range.begin + range.num_elements == next.range.begin &&
           SameBits(update.coefficients, next.coefficients) &&
           SameBits<float>(
               {update.learning_rate, update.weight_decay, update.trust},
               {next.learning_rate, next.weight_decay, next.trust});
  }

  // 0.0 and -0.0 give other zeros.
  template <class Real>
  static bool SameBits(absl::Span<const Real> a, absl::Span<const Real> b) {
    return a.size() == b.size() &&
           std::equal(a.begin(), a.end(), b.begin(), [](Real x, Real y) {
             return x == y && std::signbit(x) == std::signbit(y);
           });
  }

  bool ChecksFinite() const {
    return request_.all_finite != nullptr && work_ != Work::kCombine;
  }

  cudaError_t Launch(const UpdateLaunch& launch) const {
    switch (work_) {
      case Work::kCombine:
        return LaunchCombine(launch, scratch_.compute.get());
      case Work::kStep:
        return LaunchStep(launch, scratch_.compute.get());
      default:
        return LaunchUpdate(launch, scratch_.compute.get());
    }
  }

  bool Downloads() const {
    return work_ != Work::kCombine && request_.snapshot != nullptr;
  }

  // Whether the float32 snapshot is not to keep others waiting.
  bool MayDefer() const {
    return Downloads() && request_.snapshot_deferred != nullptr;
  }

  // It comes behind the narrowed one, or when somebody asks for it.
  bool CopiesFloatsInWaves() const {
    return !MayDefer() || (request_.narrowed_snapshot == nullptr &&
                           !request_.snapshot_on_demand);
  }

  // Whether waves' bytes go to the host while later ones are computed.
  bool CopiesInWaves() const {
    return Downloads() &&
           (CopiesFloatsInWaves() || request_.narrowed_snapshot != nullptr);
  }

  // Waves take turns with two blocks of arguments: what is in pinned memory can
  // be written while the wave before is computed.
  absl::Status RunWave(const std::vector<Wave>& waves, size_t index) {
    const Wave& wave = waves[index];
    ArgsBlock& args = scratch_.args[index % 2];
    absl::Status status = args.Begin();
    if (!status.ok()) return status;
    UpdateLaunch launch;
    PrepareWave(wave, &args, &launch);
    AGG_RETURN_IF_CUDA_ERROR(Launch(launch));
    if (args.uses_pinned() && index + 2 < waves.size()) {
      status = args.MarkRead(scratch_.compute.get());
    }
    if (!status.ok() || !Downloads()) return status;
    // What comes later goes behind the last wave.
    if (!CopiesInWaves() && index + 1 < waves.size()) return status;
    AGG_RETURN_IF_CUDA_ERROR(
        cudaEventRecord(scratch_.computed.get(), scratch_.compute.get()));
    AGG_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(scratch_.download.get(),
                                                 scratch_.computed.get(), 0));
    if (!CopiesInWaves()) return status;
    for (const Span& span : CoveredSpans(wave)) {
      if (CopiesFloatsInWaves()) {
        status = Download(launch_.master, 4, span, request_.snapshot);
      }
      if (status.ok() && launch_.narrowed != nullptr) {
        status =
            Download(launch_.narrowed, 2, span, request_.narrowed_snapshot);
      }
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Download(const void* from, int64_t element_bytes,
                        const Span& span, Buffer* to) {
    const int64_t begin = span.begin * element_bytes;
    return CopyToHost(static_cast<const char*>(from), to->host(),
                      {begin, begin + span.num_elements * element_bytes},
                      scratch_.download.get());
  }

  // The float32 snapshot, behind all of the narrowed one: the bus copies one
  // right after the other. *deferred: Finish need not wait for it.
  absl::Status DownloadLater(const std::vector<Wave>& waves, bool* deferred) {
    const cudaStream_t stream = scratch_.download.get();
    AGG_RETURN_IF_CUDA_ERROR(cudaEventRecord(
        scratch_.published.get(),
        launch_.narrowed == nullptr ? scratch_.compute.get() : stream));
    const SnapshotCopies::When when =
        CopiesFloatsInWaves()         ? SnapshotCopies::When::kStarted
        : request_.snapshot_on_demand ? SnapshotCopies::When::kOnDemand
                                      : SnapshotCopies::When::kNow;
    return scratch_.snapshots->Start(launch_.master, *request_.snapshot,
                                     CoveredSpans(waves), stream, when,
                                     deferred);
  }

  // The last wave's download comes after all else.
  absl::Status Finish(bool all_asked_for, bool deferred) {
    if (deferred) {
      AGG_RETURN_IF_CUDA_ERROR(Await(scratch_.published.get()));
      return absl::OkStatus();
    }
    if (!all_asked_for || !Downloads()) {
      AGG_RETURN_IF_CUDA_ERROR(Await(scratch_.compute.get()));
    }
    if (Downloads()) {
      AGG_RETURN_IF_CUDA_ERROR(Await(scratch_.download.get()));
    }
    return absl::OkStatus();
  }

  absl::Status NormsOfWave(const Wave& wave, absl::Span<RangeNorms> norms) {
    const cudaStream_t stream = scratch_.compute.get();
    ArgsBlock& args = scratch_.args[0];
    const absl::Status status = args.Begin();
    if (!status.ok()) return status;
    UpdateLaunch launch;
    PrepareWave(wave, &args, &launch);
    SumLaunch sum;
    sum.slots = args.Append(absl::MakeConstSpan(wave.slots), &sum.args);
    sum.num_slots = static_cast<int64_t>(wave.slots.size());
    auto* const partial = reinterpret_cast<double*>(scratch_.partial.get());
    AGG_RETURN_IF_CUDA_ERROR(LaunchNorms(launch, partial, stream));
    sum.partial = partial;
    sum.num_values = 2;
    sum.sums = reinterpret_cast<double*>(scratch_.host_sums.get());
    AGG_RETURN_IF_CUDA_ERROR(LaunchSums(sum, stream));
    AGG_RETURN_IF_CUDA_ERROR(Await(stream));
    const double* from = sum.sums;
    for (const int64_t r : wave.slot_ranges) {
      norms[r].parameter_norm_squared += *from++;
      norms[r].update_norm_squared += *from++;
    }
    return absl::OkStatus();
  }

  const UpdateRequest& request_;
  const Work work_;
  CudaScratch& scratch_;
  std::vector<const void*> rows_;  // on the device
  // What is computed, and of each range the first one of the request's.
  std::vector<ElementRange> ranges_;
  std::vector<const UpdateRange*> updates_;
  UpdateLaunch launch_;  // what all waves share
};

}  // namespace

absl::Status ComputeUpdate(const UpdateRequest& request, CudaScratch* scratch,
                           uint16_t* narrowed) {
  return UpdateRun(request, Work::kUpdate, scratch).Run(narrowed);
}

absl::Status ComputeCombine(const UpdateRequest& request,
                            CudaScratch* scratch) {
  return UpdateRun(request, Work::kCombine, scratch).Run(nullptr);
}

absl::Status ComputeStep(const UpdateRequest& request, CudaScratch* scratch,
                         uint16_t* narrowed) {
  return UpdateRun(request, Work::kStep, scratch).Run(narrowed);
}

absl::Status ComputeNorms(const UpdateRequest& request, CudaScratch* scratch,
                          absl::Span<RangeNorms> norms) {
  return UpdateRun(request, Work::kNorms, scratch).Norms(norms);
}

namespace {

absl::Status FillState(Buffer* state, float value, cudaStream_t stream) {
  if (state == nullptr) return absl::OkStatus();
  AGG_RETURN_IF_CUDA_ERROR(
      LaunchFill(FloatsOf(state), state->num_bytes() / 4, value, stream));
  return absl::OkStatus();
}

}  // namespace

absl::Status ComputeLoad(const OptimizerOptions& optimizer,
                         const Buffer& snapshot, Buffer* master, Buffer* state0,
                         Buffer* state1, Buffer* narrowed_snapshot,
                         DType narrowed_dtype, CudaScratch* scratch,
                         uint16_t* narrowed) {
  const cudaStream_t stream = scratch->compute.get();
  const int64_t num_elements = snapshot.num_bytes() / 4;
  absl::Status status =
      scratch->snapshots->WaitToWrite(FloatsOf(master), stream);
  if (status.ok()) {
    status = CopyToDevice(snapshot.host(), DeviceOf(master),
                          {0, num_elements * 4}, stream);
  }
  if (status.ok()) {
    status = FillState(state0, InitialState0(optimizer), stream);
  }
  if (status.ok()) status = FillState(state1, 0.0f, stream);
  if (!status.ok()) return status;
  if (narrowed_snapshot != nullptr) {
    AGG_RETURN_IF_CUDA_ERROR(LaunchNarrow(FloatsOf(master), num_elements,
                                          static_cast<int>(narrowed_dtype),
                                          narrowed, stream));
    status =
        CopyToHost(reinterpret_cast<const char*>(narrowed),
                   narrowed_snapshot->host(), {0, num_elements * 2}, stream);
    if (!status.ok()) return status;
  }
  AGG_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream));
  return absl::OkStatus();
}

absl::Status ReadState(const Buffer& state, absl::Span<float> values,
                       CudaScratch* scratch) {
  const cudaStream_t stream = scratch->compute.get();
  AGG_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(values.data(), DeviceOf(&state),
                                           values.size() * sizeof(float),
                                           cudaMemcpyDeviceToHost, stream));
  AGG_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream));
  return absl::OkStatus();
}

absl::Status WriteState(absl::Span<const float> values, Buffer* state,
                        CudaScratch* scratch) {
  const cudaStream_t stream = scratch->compute.get();
  const absl::Status status =
      scratch->snapshots->WaitToWrite(FloatsOf(state), stream);
  if (!status.ok()) return status;
  AGG_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(DeviceOf(state), values.data(),
                                           values.size() * sizeof(float),
                                           cudaMemcpyHostToDevice, stream));
  AGG_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream));
  return absl::OkStatus();
}

}  // namespace agg::cuda
