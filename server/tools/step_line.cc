#include "server/tools/step_line.h"

#include <limits>
#include <vector>

#include "server/base/json_line.h"
#include "server/combine/decision.h"

namespace agg {
namespace {

void AddStatistics(const CombineStepResult& result, bool skipped,
                   JsonLine* line) {
  const Decision& decision = result.decision;
  const double undefined = std::numeric_limits<double>::quiet_NaN();
  line->Add("norm", skipped ? undefined : decision.combined_norm);
  line->Add("orthogonality", decision.orthogonality);
  line->Add("gradient_diversity", decision.gradient_diversity);
  line->Add("mean_pairwise_cosine", result.mean_pairwise_cosine);
  line->Add("kappa", decision.tensors[0].kappa);
  line->AddBool("fallback", decision.compensated || decision.adacons_fallback);
  line->AddBool("compensated", decision.compensated);
  line->AddBool("adacons_fallback", decision.adacons_fallback);
  line->AddList("excluded", std::vector<double>(decision.excluded_ranks.begin(),
                                                decision.excluded_ranks.end()));
  line->Add("sigma2", decision.sigma2);
  line->Add("mu2", decision.mu2);
  line->Add("sigma2_mean", decision.sigma2_mean);
  line->Add("mu2_mean", decision.mu2_mean);
  line->Add("gain", skipped ? undefined : decision.gain);
  line->Add("tau", decision.tau);
}

}  // namespace

std::string CombineStepLine(int64_t step, const std::string& file,
                            const CombineStepResult& result) {
  const Decision& decision = result.decision;
  const bool skipped = decision.kind == DecisionKind::kSkip;
  std::vector<std::vector<double>> gram(result.gram.num_rows());
  for (int i = 0; i < result.gram.num_rows(); ++i) {
    for (int j = 0; j < result.gram.num_rows(); ++j) {
      gram[i].push_back(result.gram(i, j));
    }
  }
  JsonLine line;
  line.Add("step", static_cast<int>(step));
  line.AddString("file", file);
  line.AddList("coefficients", decision.coefficients[0]);
  line.AddMatrix("gram", gram);
  AddStatistics(result, skipped, &line);
  line.Add("step_factor", decision.step_factor);
  line.Add("learning_rate", decision.learning_rate);
  line.Add("clip_factor", decision.clip_factor);
  line.AddBool("finished", decision.finished);
  if (skipped) {
    line.AddString("skipped", decision.skip_reason);
  } else {
    line.AddNull("skipped");
  }
  return line.Finish();
}

}  // namespace agg
