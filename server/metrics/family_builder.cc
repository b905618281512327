// prometheus-cpp's families, filled by hand: its own metrics count at each call
// and take a lock, while ours are read from plain values at a scrape.
#include "server/metrics/family_builder.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "prometheus/client_metric.h"
#include "prometheus/metric_family.h"
#include "prometheus/metric_type.h"
#include "server/base/dcheck.h"
#include "server/metrics/round_state.h"

namespace agg {

FamilyBuilder::FamilyBuilder(MetricLabels constant_labels)
    : constant_labels_(std::move(constant_labels)) {}

void FamilyBuilder::Begin(const std::string& name, const std::string& help,
                          prometheus::MetricType type) {
  families_.push_back({name, help, type, {}});
}

void FamilyBuilder::BeginCounter(const std::string& name,
                                 const std::string& help) {
  Begin(name, help, prometheus::MetricType::Counter);
}

void FamilyBuilder::BeginGauge(const std::string& name,
                               const std::string& help) {
  Begin(name, help, prometheus::MetricType::Gauge);
}

void FamilyBuilder::BeginHistogram(const std::string& name,
                                   const std::string& help) {
  Begin(name, help, prometheus::MetricType::Histogram);
}

prometheus::ClientMetric& FamilyBuilder::AddSeries(const MetricLabels& labels) {
  prometheus::ClientMetric& series = families_.back().metric.emplace_back();
  series.label = constant_labels_;
  series.label.insert(series.label.end(), labels.begin(), labels.end());
  return series;
}

void FamilyBuilder::Add(double value, const MetricLabels& labels) {
  AGG_DCHECK(!families_.empty());
  AGG_DCHECK(families_.back().type != prometheus::MetricType::Histogram);
  prometheus::ClientMetric& series = AddSeries(labels);
  if (families_.back().type == prometheus::MetricType::Counter) {
    series.counter.value = value;
  } else {
    series.gauge.value = value;
  }
}

void FamilyBuilder::AddHistogram(const DurationHistogram& histogram,
                                 const MetricLabels& labels) {
  AGG_DCHECK(!families_.empty());
  AGG_DCHECK(families_.back().type == prometheus::MetricType::Histogram);
  prometheus::ClientMetric::Histogram& out = AddSeries(labels).histogram;
  uint64_t cumulated = 0;
  for (size_t i = 0; i < DurationHistogram::kNumBuckets; ++i) {
    cumulated += histogram.counts()[i];
    const double bound = i < DurationHistogram::kBounds.size()
                             ? DurationHistogram::kBounds[i]
                             : std::numeric_limits<double>::infinity();
    out.bucket.push_back({cumulated, bound});
  }
  out.sample_count = cumulated;
  out.sample_sum = histogram.sum_seconds();
}

void FamilyBuilder::Counter(const std::string& name, const std::string& help,
                            double value) {
  BeginCounter(name, help);
  Add(value);
}

void FamilyBuilder::Gauge(const std::string& name, const std::string& help,
                          double value) {
  BeginGauge(name, help);
  Add(value);
}

void FamilyBuilder::Info(const std::string& name, const std::string& help,
                         const MetricLabels& labels) {
  BeginGauge(name, help);
  Add(1.0, labels);
}

std::vector<prometheus::MetricFamily> FamilyBuilder::Take() {
  return std::move(families_);
}

}  // namespace agg
