// Sends waves of chunks to the kernels and adds their sums on the host, in
// order. Large ranges of many rows go to cuBLAS instead.
#include "kernels/cuda/cuda_gram.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/cuda/args_block.h"
#include "kernels/cuda/chunk_plan.h"
#include "kernels/cuda/cuda_buffer.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/gram_schedule.h"
#include "kernels/double_pair.h"
#include "kernels/row_format.h"

namespace agg::cuda {
namespace {

constexpr int64_t kDoubleBytes = sizeof(double);

class GramRun {
 public:
  GramRun(const GramRequest& request, CudaScratch* scratch)
      : request_(request),
        scratch_(*scratch),
        num_rows_(static_cast<int64_t>(request.rows.size())),
        num_pairs_(PackedGramSize(num_rows_)),
        tile_(PlanTile(num_rows_, kTileBytes)) {
    for (const Buffer* row : request.rows) rows_.push_back(DeviceOf(row));
  }

  absl::Status Run() {
    std::fill(request_.hi.begin(), request_.hi.end(), 0.0);
    std::fill(request_.lo.begin(), request_.lo.end(), 0.0);
    const int64_t pair_bytes = kDoubleBytes * (request_.compensated ? 2 : 1);
    const int64_t max_chunks =
        GramWaveChunks(num_pairs_ * pair_bytes, scratch_.wave_bytes);
    if (max_chunks == 0) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "a Gram matrix of ", num_rows_, " rows takes ",
          num_pairs_ * pair_bytes, " bytes of ", scratch_.wave_bytes));
    }
    absl::Status status = RunTiles();
    if (!status.ok()) return status;
    for (const Wave& wave : PlanWaves(KernelRanges(), max_chunks, max_chunks)) {
      status = RunWave(wave);
      if (!status.ok()) return status;
    }
    Canonicalize(request_.hi);
    Canonicalize(request_.lo);
    return absl::OkStatus();
  }

 private:
  bool IsInt8() const { return request_.dtype == DType::kI8; }

  // Integers need no help of cuBLAS, and less than a tile is not worth its
  // three launches.
  bool IsTiled(const ElementRange& range) const {
    return !IsInt8() && num_rows_ > scratch_.many_rows &&
           !request_.compensated && !scratch_.double_float &&
           scratch_.prepared() && tile_.num_batches > 0 &&
           range.num_elements >= tile_.row_stride();
  }

  // The request's ranges; those that cuBLAS takes are empty.
  std::vector<ElementRange> KernelRanges() const {
    std::vector<ElementRange> ranges(request_.ranges.begin(),
                                     request_.ranges.end());
    for (ElementRange& range : ranges) {
      if (IsTiled(range)) range.num_elements = 0;
    }
    return ranges;
  }

  // Of tiles alone, on the device.
  double* sums() const {
    return reinterpret_cast<double*>(scratch_.sums.get());
  }
  // What the host adds up: kernels write it there over the bus, since a copy
  // might have to wait behind those of snapshots.
  double* host_sums() const {
    return reinterpret_cast<double*>(scratch_.host_sums.get());
  }

  absl::Status RunWave(const Wave& wave) {
    ArgsBlock& args = scratch_.args[0];
    absl::Status status = args.Begin();
    if (!status.ok()) return status;
    const auto num_slots = static_cast<int64_t>(wave.slots.size());
    GramLaunch gram;
    gram.rows = args.Append(absl::MakeConstSpan(rows_), &gram.args);
    gram.num_rows = static_cast<int>(num_rows_);
    gram.dtype = static_cast<int>(request_.dtype);
    if (IsInt8()) {
      gram.scale_offset = ScaleOffset(request_.rows[0]->num_bytes(), 0);
    }
    AppendChunks(wave, &args, &gram);
    gram.partial = reinterpret_cast<double*>(scratch_.partial.get());
    gram.partial_lo = gram.partial + wave.num_chunks * num_pairs_;
    SumLaunch sum;
    sum.partial = gram.partial;
    sum.slots = args.Append(absl::MakeConstSpan(wave.slots), &sum.args);
    sum.num_slots = num_slots;
    sum.num_values = num_pairs_;
    sum.sums = host_sums();
    if (request_.compensated) {
      sum.partial_lo = gram.partial_lo;
      sum.sums_lo = sum.sums + num_slots * num_pairs_;
    }
    const cudaStream_t stream = scratch_.compute.get();
    AGG_RETURN_IF_CUDA_ERROR(
        IsInt8() ? LaunchGramInt8(gram, request_.compensated, stream)
        : request_.compensated  ? LaunchGramPairs(gram, stream)
        : scratch_.double_float ? LaunchGramDoubleFloat(gram, stream)
                                : LaunchGram(gram, stream));
    AGG_RETURN_IF_CUDA_ERROR(LaunchSums(sum, stream));
    return AddSums(wave.slot_ranges);
  }

  // Waits for host_sums() of the ranges and adds them to the request's results:
  // the pieces of a range longer than a wave in order.
  absl::Status AddSums(const std::vector<int64_t>& ranges) {
    const int64_t num_values = static_cast<int64_t>(ranges.size()) * num_pairs_;
    AGG_RETURN_IF_CUDA_ERROR(Await(scratch_.compute.get()));
    const double* from = host_sums();
    for (const int64_t range : ranges) {
      for (int64_t to = range * num_pairs_; to < (range + 1) * num_pairs_;
           ++to, ++from) {
        if (!request_.compensated) {
          request_.hi[to] += *from;
          continue;
        }
        const DoublePair sum =
            PairAdd(DoublePair{request_.hi[to], request_.lo[to]},
                    DoublePair{*from, from[num_values]});
        request_.hi[to] = sum.hi;
        request_.lo[to] = sum.lo;
      }
    }
    return absl::OkStatus();
  }

  // The large ranges of many rows, as many at a time as sums() has room for.
  absl::Status RunTiles() {
    std::vector<int64_t> ranges;
    const int64_t max_ranges =
        scratch_.wave_bytes / (num_pairs_ * kDoubleBytes);
    for (size_t r = 0; r < request_.ranges.size(); ++r) {
      if (IsTiled(request_.ranges[r])) {
        ranges.push_back(static_cast<int64_t>(r));
      }
      const bool is_last = r + 1 == request_.ranges.size();
      if (!ranges.empty() &&
          (is_last || static_cast<int64_t>(ranges.size()) == max_ranges)) {
        const absl::Status status = RunTilesOf(ranges);
        if (!status.ok()) return status;
        ranges.clear();
      }
    }
    return absl::OkStatus();
  }

  absl::Status RunTilesOf(const std::vector<int64_t>& ranges) {
    ArgsBlock& args = scratch_.args[0];
    absl::Status status = args.Begin();
    if (!status.ok()) return status;
    ConvertLaunch convert;
    convert.rows = args.Append(absl::MakeConstSpan(rows_), &convert.args);
    convert.num_rows = static_cast<int>(num_rows_);
    convert.dtype = static_cast<int>(request_.dtype);
    convert.tile = reinterpret_cast<double*>(scratch_.tile.get());
    convert.row_stride = tile_.row_stride();
    const size_t num_bytes = ranges.size() * num_pairs_ * kDoubleBytes;
    AGG_RETURN_IF_CUDA_ERROR(
        cudaMemsetAsync(sums(), 0, num_bytes, scratch_.compute.get()));
    for (size_t i = 0; i < ranges.size(); ++i) {
      const ElementRange& range = request_.ranges[ranges[i]];
      for (int64_t done = 0; done < range.num_elements;
           done += tile_.row_stride()) {
        convert.begin = range.begin + done;
        convert.num_elements = static_cast<int>(
            std::min(tile_.row_stride(), range.num_elements - done));
        status =
            RunTile(convert, sums() + static_cast<int64_t>(i) * num_pairs_);
        if (!status.ok()) return status;
      }
    }
    AGG_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(host_sums(), sums(), num_bytes,
                                             cudaMemcpyDeviceToHost,
                                             scratch_.compute.get()));
    return AddSums(ranges);
  }

  absl::Status RunTile(ConvertLaunch convert, double* to) {
    const int num_batches =
        (convert.num_elements + kBatchElements - 1) / kBatchElements;
    convert.num_filled = num_batches * kBatchElements;
    AGG_RETURN_IF_CUDA_ERROR(LaunchConvert(convert, scratch_.compute.get()));
    BatchedGram product;
    product.a = convert.tile;
    product.num_rows = convert.num_rows;
    product.num_elements = kBatchElements;
    product.row_stride = static_cast<int>(tile_.row_stride());
    product.num_batches = num_batches;
    product.c = reinterpret_cast<double*>(scratch_.matrices.get());
    const absl::Status status = scratch_.cublas->Gram(product);
    if (!status.ok()) return status;
    GatherLaunch gather;
    gather.matrices = product.c;
    gather.num_batches = num_batches;
    gather.num_rows = convert.num_rows;
    gather.sums = to;
    AGG_RETURN_IF_CUDA_ERROR(LaunchGather(gather, scratch_.compute.get()));
    return absl::OkStatus();
  }

  static void Canonicalize(absl::Span<double> values) {
    for (double& value : values) {
      if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
    }
  }

  const GramRequest& request_;
  CudaScratch& scratch_;
  const int64_t num_rows_;
  const int64_t num_pairs_;
  const TileShape tile_;
  std::vector<const void*> rows_;  // on the device
};

}  // namespace

absl::Status ComputeGram(const GramRequest& request, CudaScratch* scratch) {
  return GramRun(request, scratch).Run();
}

}  // namespace agg::cuda
