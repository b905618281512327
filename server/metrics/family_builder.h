// Builds the metric families of one scrape: constant labels, NaN where a
// value is undefined, nothing that throws.
#ifndef AGG_SERVER_METRICS_FAMILY_BUILDER_H_
#define AGG_SERVER_METRICS_FAMILY_BUILDER_H_

#include <string>
#include <vector>

#include "prometheus/client_metric.h"
#include "prometheus/metric_family.h"
#include "server/metrics/round_state.h"

namespace agg {

using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

// Not thread-safe. Families come out in the order they were begun; names and
// label names are literals of this folder, so that nothing can be malformed.
class FamilyBuilder {
 public:
  // `constant_labels` come first in every series.
  explicit FamilyBuilder(MetricLabels constant_labels);

  // Starts a family; the Add calls that follow are its series.
  void BeginCounter(const std::string& name, const std::string& help);
  void BeginGauge(const std::string& name, const std::string& help);
  void BeginHistogram(const std::string& name, const std::string& help);

  // REQUIRES: in a counter or gauge family, labels that no other series of
  // the family has.
  void Add(double value, const MetricLabels& labels = {});
  // REQUIRES: in a histogram family.
  void AddHistogram(const DurationHistogram& histogram,
                    const MetricLabels& labels);

  // A family of one series.
  void Counter(const std::string& name, const std::string& help, double value);
  void Gauge(const std::string& name, const std::string& help, double value);
  // A gauge that is always 1: the facts are in the labels.
  void Info(const std::string& name, const std::string& help,
            const MetricLabels& labels);

  std::vector<prometheus::MetricFamily> Take();

 private:
  void Begin(const std::string& name, const std::string& help,
             prometheus::MetricType type);
  prometheus::ClientMetric& AddSeries(const MetricLabels& labels);

  const MetricLabels constant_labels_;
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace agg

#endif  // AGG_SERVER_METRICS_FAMILY_BUILDER_H_
