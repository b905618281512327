// The line's members: the round's numbers by their table, and what agg_combine
// adds to them.
#include "server/tools/step_line.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "server/base/json.h"
#include "server/combine/decision.h"
#include "server/combine/gram_matrix.h"
#include "server/round/round_numbers.h"
#include "server/round/round_report.h"

namespace agg {
namespace {

// The step as a round of the server, which the table reads numbers from.
RoundReport ReportOf(const CombineStepResult& result) {
  constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
  RoundReport report;
  report.applied = result.decision.kind == DecisionKind::kApply;
  report.decision = result.decision;
  report.statistics = result.statistics;
  // One matrix is one tensor: its own value is the largest.
  report.statistics.max_kappa = result.decision.tensors[0].kappa;
  report.loss = kUndefined;
  if (!report.applied) {
    report.decision.combined_norm = kUndefined;
    report.decision.gain = kUndefined;
  }
  return report;
}

Json MatrixJson(const GramMatrix& gram) {
  Json rows = Json::array();
  for (int i = 0; i < gram.num_rows(); ++i) {
    std::vector<double> row;
    for (int j = 0; j < gram.num_rows(); ++j) row.push_back(gram(i, j));
    rows.push_back(ExactNumbers(row));
  }
  return rows;
}

std::vector<int32_t> OutlierRanks(const OutlierReport& outliers) {
  std::vector<int32_t> ranks;
  for (const OutlierRow& row : outliers.rows) ranks.push_back(row.rank);
  return ranks;
}

}  // namespace

std::string CombineStepLine(int64_t step, const std::string& file,
                            const CombineStepResult& result) {
  const Decision& decision = result.decision;
  const RoundReport report = ReportOf(result);
  Json line;
  line["step"] = step;
  line["file"] = file;
  line["coefficients"] = ExactNumbers(decision.coefficients[0]);
  line["gram"] = MatrixJson(result.gram);
  for (const RoundNumber& number : RoundNumbers()) {
    const std::string name = NameIn(number, &RoundOutlets::step);
    if (!name.empty()) line[name] = ExactNumber(number.value.Get(report));
  }
  line["fallback"] = decision.compensated || decision.adacons_fallback;
  line["compensated"] = decision.compensated;
  line["adacons_fallback"] = decision.adacons_fallback;
  line["short_of_rows"] = decision.short_of_rows;
  line["excluded"] = decision.excluded_ranks;
  line["taken_for_zero"] = result.taken_for_zero;
  line["outliers"] = OutlierRanks(decision.outliers);
  line["outliers_not_judged"] = decision.outliers.too_few_rows;
  line["finished"] = decision.finished;
  line["skipped"] = report.applied ? Json() : Json(decision.skip_reason);
  return JsonLine(line);
}

}  // namespace agg
