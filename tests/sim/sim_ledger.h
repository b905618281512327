// What workers were told and could see in a simulated job, and whether all of
// it agrees with the history that the job ends with.
#ifndef AGG_TESTS_SIM_SIM_LEDGER_H_
#define AGG_TESTS_SIM_SIM_LEDGER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/coordinator/coordinator_types.h"
#include "tests/server/round/row_frames.h"

namespace agg {

// A history is named by its `history`; 0: nothing is seeded.
class SimLedger {
 public:
  // A worker hears the outcome of its row.
  void Told(int32_t rank, uint64_t history, const RoundResult& outcome);
  // A worker has the version, and all of its parts.
  void Pulled(uint64_t history, uint64_t version, const Tensors& parameters);
  // An epoch is on. `excused`: two neighbours were lost, or there are no second
  // copies.
  void EpochBegan(uint64_t epoch, uint64_t history, uint64_t version,
                  bool excused);
  // The job has ended: the outcomes of all of its rounds, in their order.
  void Ended(uint64_t history, const std::vector<RoundResult>& outcomes);

  int num_rewinds() const { return num_rewinds_; }
  // What contradicts itself; empty: nothing.
  const std::vector<std::string>& errors() const { return errors_; }
  void Fail(const std::string& error) { errors_.push_back(error); }
  // Tensors by history and version.
  const std::map<std::pair<uint64_t, uint64_t>, Tensors>& pulled() const {
    return pulled_;
  }

 private:
  struct Word {
    int32_t rank = 0;
    uint64_t history = 0;
    RoundResult outcome;
  };
  void CheckRows(const RoundResult& outcome);

  std::vector<Word> told_;
  std::map<std::pair<uint64_t, uint64_t>, Tensors> pulled_;
  // Rows of a version, by the epoch that made it and its number.
  std::map<std::pair<uint64_t, uint64_t>, std::vector<int32_t>> rows_;
  std::map<uint64_t, uint64_t> highest_;  // that was seen, by history
  uint64_t history_ = 0;                  // of the last epoch
  uint64_t epoch_ = 0;
  int num_rewinds_ = 0;
  std::vector<std::string> errors_;
};

}  // namespace agg

#endif  // AGG_TESTS_SIM_SIM_LEDGER_H_
