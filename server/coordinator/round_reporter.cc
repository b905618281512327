// One place for the next round, and a flag until it is reported: a queue would
// let Grams pile up.
#include "server/coordinator/round_reporter.h"

#include <utility>

#include "server/combine/statistics.h"

namespace agg {

RoundReporter::RoundReporter(Callback on_report)
    : on_report_(std::move(on_report)) {}

RoundReporter::~RoundReporter() {
  if (!thread_.joinable()) return;
  Flush();
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void RoundReporter::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void RoundReporter::Add(RoundFacts facts, RoundReport report) {
  Round round{std::move(facts), std::move(report)};
  if (!thread_.joinable()) {
    Finish(std::move(round));
    return;
  }
  MutexLock lock(&mutex_);
  while (busy_) changed_.Wait(&mutex_);
  busy_ = true;
  next_.emplace(std::move(round));
  changed_.NotifyAll();
}

void RoundReporter::Flush() {
  MutexLock lock(&mutex_);
  while (busy_) changed_.Wait(&mutex_);
}

std::vector<std::vector<RuleState>> RoundReporter::ShadowRules() {
  Flush();
  return shadow_rules_;
}

void RoundReporter::SetShadowRules(std::vector<std::vector<RuleState>> states) {
  Flush();
  shadow_rules_ = std::move(states);
}

void RoundReporter::Loop() {
  for (;;) {
    std::optional<Round> round;
    {
      MutexLock lock(&mutex_);
      while (!next_.has_value() && !stopped_) changed_.Wait(&mutex_);
      if (!next_.has_value()) return;
      round = std::exchange(next_, std::nullopt);
    }
    Finish(*std::exchange(round, std::nullopt));
    MutexLock lock(&mutex_);
    busy_ = false;
    changed_.NotifyAll();
  }
}

void RoundReporter::Finish(Round round) {
  // Nothing is left to compute one from that was restored.
  if (!round.report.restored) {
    round.report.statistics = ComputeStatistics(
        round.facts.combine, round.facts.rule_before, round.facts.rows,
        round.report.decision, &shadow_rules_);
  }
  // Before people are told, which may take its time.
  round.facts = RoundFacts();
  if (on_report_ != nullptr) on_report_(round.report);
}

}  // namespace agg
