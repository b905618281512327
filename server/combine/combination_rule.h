// The interface of a combination rule: Gram matrix in, coefficients out.
#ifndef AGG_SERVER_COMBINE_COMBINATION_RULE_H_
#define AGG_SERVER_COMBINE_COMBINATION_RULE_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/combine/gram_matrix.h"

namespace agg {

// The memory of one rule in one segment from one round to the next: plain
// numbers, whose meaning only the rule knows (AdaCons: its sorted momentum). So
// any rule's state is copied, compared and stored in the same way. Empty before
// the rule's first round, and always for a rule without the trait kKeepsState.
//
// Every value has the unit of a gradient: it doubles when all rows double.
// Tools that compute in other units (agg_combine) rely on this.
struct RuleState {
  std::vector<double> values;
  // What the process of the rule `external` remembers: any bytes, which nobody
  // else reads. Empty for all other rules.
  std::string bytes = {};
};

// What a job may choose about the rule AdaCons. Apart from adacons.h, since the
// interface of all rules hands it on. What the combined unit gradients are
// multiplied by (server/combine/README.md 4.3).
enum class AdaconsRescale : uint8_t { kNone, kMeanNorm, kMatchMean };

// How the sorted momentum goes back to the rows (server/combine/README.md 4.1):
// each entry to the row that its place belongs to, or as the authors' program
// indexes it.
enum class AdaconsUnsort : uint8_t { kScatter, kGather };

struct AdaconsOptions {
  double beta = 0.99;     // of the sorted momentum, in [0, 1)
  double epsilon = 1e-8;  // absolute, added to norms; > 0
  AdaconsRescale rescale = AdaconsRescale::kNone;
  AdaconsUnsort unsort = AdaconsUnsort::kScatter;
};

// What a job may choose about the rule geometric_median. Apart from
// geometric_median.h, since the interface of all rules hands it on.
struct GeometricMedianOptions {
  int32_t iterations = 64;  // at most, of Weiszfeld's algorithm; >= 1
  // Distances count as at least this part of the rows' median norm, in
  // [1e-8, 1].
  double epsilon = 1e-6;
};

// What a job may choose about the rules krum and multi_krum. Apart from krum.h,
// since the interface of all rules hands it on.
struct KrumOptions {
  // f: rows that may be anything, >= 0. The guarantee needs P >= 2 f + 3.
  int32_t byzantine_workers = 1;
  // m: rows that multi_krum averages, >= 0; 0: P - f. krum ignores it.
  int32_t selected = 0;
};

// The largest f that Krum's guarantee allows with P rows; below 0 with fewer
// than 3.
constexpr int32_t MostByzantineWorkers(int32_t num_rows) {
  return num_rows < 3 ? -1 : (num_rows - 3) / 2;
}

// f of a job of so many workers that does not say it: the usual one, or what
// the guarantee allows, at least 0.
constexpr int32_t DefaultByzantineWorkers(int32_t num_workers) {
  const int32_t usual = KrumOptions().byzantine_workers;
  const int32_t most = std::max(MostByzantineWorkers(num_workers), 0);
  return std::min(usual, most);
}

// What the process of the rule `external` has answered about one segment.
struct ExternalSegment {
  std::vector<double> weights;  // P, of rows without their loss scale; finite
  std::string state;            // RuleState::bytes after the round
};

// What a rule sees of one segment (one tensor, or all of them): a snapshot.
// Rows with non-finite values are left out, the others are in rank order and
// without their loss scale.
struct RuleInput {
  const GramMatrix& gram;             // P x P, finite entries, P >= 1
  absl::Span<const double> examples;  // P; each > 0
  // The job's choices, each for the rules with its trait alone.
  const AdaconsOptions& adacons;
  const KrumOptions& krum;
  const GeometricMedianOptions& geometric_median;
  // The answer about this segment, for the rule `external` alone; null: none.
  const ExternalSegment* external = nullptr;
};

struct RuleResult {
  double norm_squared = 0.0;  // of the combination, ||w^T A||^2 >= 0
  // Cancellation in the rule's own arithmetic, >= 1: how many times the largest
  // term of a sum exceeds the sum (server/combine/README.md 3.4). 1 for a rule
  // without the trait kMeasuresCancellation.
  double kappa = 1.0;
  bool fell_back = false;  // its guard chose the mean instead
  // The combination is one of unit vectors: it does not grow with the rows.
  bool of_unit_rows = false;
  // There are fewer rows than the rule's guarantee needs: it has assumed that
  // fewer of them are byzantine than the job says.
  bool short_of_rows = false;
};

// A rule decides how much each row counts. Its coefficients depend on the
// arguments alone: the same input and state give the same bits on every machine
// and in every call. So a rule
//  - performs no I/O, reads no clock and draws no random numbers;
//  - never fails: each degenerate input (zero rows, P = 1, rows that cancel)
//    has a policy that the rule's header states;
//  - remembers nothing between calls. What must outlive a round belongs in
//    RuleState, which the caller keeps, resets when the rule or its options
//    change, and stores. What only saves time, as scratch memory, may be a
//    member.
//
// Objects are made by the table (rule_table.h), used by one thread and cheap to
// make again.
class CombinationRule {
 public:
  virtual ~CombinationRule() = default;

  // Fills `coefficients`, one per row of the input, and advances *state. A
  // rule whose guard fires leaves *state as it was.
  // REQUIRES: coefficients.size() == input.gram.num_rows(); *state is empty or
  // was left by this rule with the same options (P may have changed since).
  virtual RuleResult Combine(const RuleInput& input, RuleState* state,
                             absl::Span<double> coefficients) = 0;
};

// The result of a rule that only chose `coefficients`: norm_squared is
// w^T G w, which rounding must not leave below 0; of a compensated Gram matrix
// with all its digits. O(P^2).
RuleResult ResultOf(const GramMatrix& gram,
                    absl::Span<const double> coefficients);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_COMBINATION_RULE_H_
