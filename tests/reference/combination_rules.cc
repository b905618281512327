#include "tests/reference/combination_rules.h"

#include "tests/reference/adacons_rule.h"
#include "tests/reference/adasum_tree.h"
#include "tests/reference/robust_rules.h"
#include "tests/reference/row_statistics.h"

namespace agg {
namespace reference {
namespace {

using Examples = std::vector<double>;

struct Transcription {
  const char* rule;
  CombineVectors combine;
};

const Transcription kTranscriptions[] = {
    {"sum", [](const Rows& rows, const Examples&) { return Sum(rows); }},
    {"mean", [](const Rows& rows, const Examples&) { return Mean(rows); }},
    {"weighted_mean", WeightedMean},
    {"unit_mean",
     [](const Rows& rows, const Examples&) { return UnitMean(rows); }},
    {"adasum",
     [](const Rows& rows, const Examples&) { return AdasumTree(rows); }},
    {"adasum_counted",
     [](const Rows& rows, const Examples&) { return AdasumCountedTree(rows); }},
    {"adacons",
     [](const Rows& rows, const Examples&) {
       Vector momentum;
       return Adacons(rows, 0.99L, 1e-8L, Rescale::kNone, &momentum).direction;
     }},
    {"krum",
     [](const Rows& rows, const Examples&) { return MultiKrum(rows, 1, 1); }},
    {"multi_krum",
     [](const Rows& rows, const Examples&) { return MultiKrum(rows, 1, 0); }},
    {"geometric_median",
     [](const Rows& rows, const Examples&) {
       return GeometricMedian(rows, 64, 1e-6L);
     }},
};

}  // namespace

CombineVectors FindTranscription(const std::string& rule) {
  for (const Transcription& transcription : kTranscriptions) {
    if (rule == transcription.rule) return transcription.combine;
  }
  return nullptr;
}

}  // namespace reference
}  // namespace agg
