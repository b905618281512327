// The checks that keep a wrong request from writing outside a buffer. Apart
// from the CPU backend because the CUDA backend makes them, too.
#include "kernels/cpu/request_check.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/row_format.h"

namespace agg {
namespace {

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("kernel request: ", what));
}

// Largest end of the ranges so far, or why one is not a range.
absl::Status CheckRange(const ElementRange& range, int64_t alignment,
                        int64_t* end) {
  if (range.begin < 0 || range.num_elements < 0 ||
      range.begin % alignment != 0) {
    return Bad(absl::StrCat("range of ", range.num_elements, " elements at ",
                            range.begin));
  }
  *end = std::max(*end, range.begin + range.num_elements);
  return absl::OkStatus();
}

absl::Status CheckBuffer(const Buffer* buffer, absl::string_view name,
                         DType dtype, int64_t num_elements) {
  if (buffer == nullptr) return Bad(absl::StrCat("no ", name));
  const int64_t num_needed = num_elements * DTypeBytes(dtype);
  if (buffer->num_bytes() < num_needed) {
    return Bad(absl::StrCat(name, " has ", buffer->num_bytes(), " bytes of ",
                            num_needed));
  }
  return absl::OkStatus();
}

absl::Status CheckRows(absl::Span<const Buffer* const> rows, DType dtype,
                       int64_t num_elements) {
  if (rows.empty()) return Bad("no rows");
  const int64_t num_needed =
      RowBytes(dtype, (num_elements + LayoutAlignment(dtype) - 1) /
                          LayoutAlignment(dtype) * LayoutAlignment(dtype));
  for (const Buffer* row : rows) {
    absl::Status status = CheckBuffer(row, "row", dtype, num_elements);
    if (!status.ok()) return status;
    if (dtype != DType::kI8) continue;
    // Scales are at one offset in all rows.
    if (row->num_bytes() < num_needed ||
        row->num_bytes() != rows[0]->num_bytes() ||
        row->num_bytes() !=
            RowBytes(dtype, RowElements(dtype, row->num_bytes()))) {
      return Bad(absl::StrCat(
          "an int8 row has ", row->num_bytes(), " bytes; the first one has ",
          rows[0]->num_bytes(), ", and ", num_needed,
          " are needed, in blocks of ", RowBytes(dtype, kScaleBlockElements)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckState(const OptimizerOptions& optimizer, const Buffer* state0,
                        const Buffer* state1, int64_t num_elements) {
  const int num_arrays = OptimizerStateArrays(optimizer);
  if (num_arrays > 0) {
    const absl::Status status =
        CheckBuffer(state0, "state0", DType::kF32, num_elements);
    if (!status.ok()) return status;
  }
  if (num_arrays > 1) {
    return CheckBuffer(state1, "state1", DType::kF32, num_elements);
  }
  return absl::OkStatus();
}

absl::Status CheckNarrowed(const Buffer* narrowed, DType dtype,
                           int64_t num_elements) {
  if (narrowed == nullptr) return absl::OkStatus();
  if (dtype != DType::kBF16 && dtype != DType::kF16) {
    return Bad(absl::StrCat("narrowed snapshot of dtype ", DTypeName(dtype)));
  }
  return CheckBuffer(narrowed, "narrowed snapshot", dtype, num_elements);
}

absl::Status CheckCombined(const Buffer* combined, int64_t num_elements) {
  const absl::Status status =
      CheckBuffer(combined, "combined gradient", DType::kF32, num_elements);
  if (!status.ok() || combined->host() != nullptr) return status;
  return Bad("the combined gradient is not on the host");
}

// Largest end of the ranges, or why one is not a range that begins at a
// multiple of `alignment`.
absl::Status CheckUpdateRanges(const UpdateRequest& request, int64_t alignment,
                               int64_t* end) {
  for (const UpdateRange& update : request.ranges) {
    const absl::Status status = CheckRange(update.range, alignment, end);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckCoefficients(const UpdateRequest& request) {
  for (const UpdateRange& update : request.ranges) {
    if (update.coefficients.size() != request.rows.size()) {
      return Bad(absl::StrCat(update.coefficients.size(), " coefficients for ",
                              request.rows.size(), " rows"));
    }
  }
  return absl::OkStatus();
}

// The first that is not OK.
absl::Status FirstError(std::initializer_list<absl::Status> statuses) {
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// What a step reads and changes.
absl::Status CheckStepped(const UpdateRequest& request, int64_t end) {
  if (request.step < 1) return Bad(absl::StrCat("step ", request.step));
  return FirstError(
      {CheckBuffer(request.master, "master", DType::kF32, end),
       CheckState(request.optimizer, request.state0, request.state1, end)});
}

// What Norms and Update read.
absl::Status CheckNorms(const UpdateRequest& request, int64_t* end) {
  absl::Status status =
      CheckUpdateRanges(request, LayoutAlignment(request.dtype), end);
  if (status.ok()) status = CheckCoefficients(request);
  if (!status.ok()) return status;
  return FirstError({CheckRows(request.rows, request.dtype, *end),
                     CheckStepped(request, *end)});
}

}  // namespace

absl::Status CheckGramRequest(const GramRequest& request) {
  int64_t end = 0;
  for (const ElementRange& range : request.ranges) {
    const absl::Status status =
        CheckRange(range, LayoutAlignment(request.dtype), &end);
    if (!status.ok()) return status;
  }
  const size_t num_doubles =
      request.ranges.size() *
      PackedGramSize(static_cast<int64_t>(request.rows.size()));
  if (request.hi.size() != num_doubles ||
      request.lo.size() != (request.compensated ? num_doubles : 0)) {
    return Bad(absl::StrCat("results have ", request.hi.size(), " and ",
                            request.lo.size(), " doubles of ", num_doubles));
  }
  return CheckRows(request.rows, request.dtype, end);
}

absl::Status CheckUpdateRequest(const UpdateRequest& request) {
  int64_t end = 0;
  absl::Status status = CheckNorms(request, &end);
  if (!status.ok()) return status;
  return FirstError(
      {CheckBuffer(request.snapshot, "snapshot", DType::kF32, end),
       CheckNarrowed(request.narrowed_snapshot, request.narrowed_dtype, end)});
}

absl::Status CheckCombineRequest(const UpdateRequest& request) {
  int64_t end = 0;
  absl::Status status =
      CheckUpdateRanges(request, LayoutAlignment(request.dtype), &end);
  if (status.ok()) status = CheckCoefficients(request);
  if (!status.ok()) return status;
  return FirstError({CheckRows(request.rows, request.dtype, end),
                     CheckCombined(request.combined, end)});
}

absl::Status CheckStepRequest(const UpdateRequest& request) {
  int64_t end = 0;
  absl::Status status = CheckUpdateRanges(request, kLayoutAlignment, &end);
  if (status.ok()) status = CheckCombined(request.combined, end);
  if (status.ok()) status = CheckStepped(request, end);
  if (!status.ok()) return status;
  if (request.snapshot == nullptr) {
    return request.narrowed_snapshot == nullptr
               ? absl::OkStatus()
               : Bad("a narrowed snapshot and no snapshot");
  }
  return FirstError(
      {CheckBuffer(request.snapshot, "snapshot", DType::kF32, end),
       CheckNarrowed(request.narrowed_snapshot, request.narrowed_dtype, end)});
}

absl::Status CheckNormsRequest(const UpdateRequest& request) {
  int64_t end = 0;
  return CheckNorms(request, &end);
}

absl::Status CheckLoad(const OptimizerOptions& optimizer,
                       const Buffer& snapshot, const Buffer* master,
                       const Buffer* state0, const Buffer* state1,
                       const Buffer* narrowed_snapshot, DType narrowed_dtype) {
  const int64_t num_elements = snapshot.num_bytes() / DTypeBytes(DType::kF32);
  return FirstError(
      {CheckBuffer(master, "master", DType::kF32, num_elements),
       CheckState(optimizer, state0, state1, num_elements),
       CheckNarrowed(narrowed_snapshot, narrowed_dtype, num_elements)});
}

absl::Status CheckStateCopy(const Buffer* state, size_t num_values) {
  if (state == nullptr) return Bad("no state");
  if (state->num_bytes() == static_cast<int64_t>(num_values * sizeof(float))) {
    return absl::OkStatus();
  }
  return Bad(absl::StrCat("state has ", state->num_bytes(), " bytes for ",
                          num_values, " values"));
}

}  // namespace agg
