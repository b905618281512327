// Threads are made for each round that is worth them: beside its milliseconds
// they cost nothing, and a small job has none.
#include "server/coordinator/orthogonality_task.h"

#include <algorithm>

#include "absl/types/span.h"
#include "server/combine/orthogonality.h"

namespace agg {
namespace {

// Entries of matrices below which threads cost more than they save: some 5 ms
// of one thread (10,000 tensors of 64 rows are 41 million).
constexpr size_t kMinEntries = size_t{1} << 21;
// Shards of the same host need CPUs, too.
constexpr unsigned kMaxThreads = 4;
constexpr size_t kTensorsPerTurn = 16;

}  // namespace

OrthogonalityTask::OrthogonalityTask(const RuleOptions& rule,
                                     const CompactedRound& round,
                                     const Decision& decision)
    : rule_(rule), round_(round) {
  if (!decision.lacks_orthogonality) return;
  results_.resize(round.tensors.size());
  const size_t num_rows = static_cast<size_t>(round.num_rows());
  if (results_.size() * num_rows * num_rows < kMinEntries) return;
  const unsigned num_threads =
      std::clamp(std::thread::hardware_concurrency(), 1u, kMaxThreads);
  for (unsigned i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
}

OrthogonalityTask::~OrthogonalityTask() { Join(); }

void OrthogonalityTask::Work() {
  for (;;) {
    const size_t begin = next_.fetch_add(kTensorsPerTurn);
    if (begin >= results_.size()) return;
    const size_t count = std::min(kTensorsPerTurn, results_.size() - begin);
    SolvePlainAdasum(round_, begin,
                     absl::MakeSpan(results_).subspan(begin, count));
  }
}

void OrthogonalityTask::Join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void OrthogonalityTask::Finish(Decision* decision) {
  Work();
  Join();
  ReportOrthogonality(rule_, round_, results_, decision);
}

}  // namespace agg
