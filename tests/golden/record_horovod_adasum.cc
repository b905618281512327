// Runs Horovod's Adasum on rows of a file, with threads for its processes: for
// record_reference_programs.py, which compiles it beside a checkout of Horovod.
//
//   record_horovod_adasum float32|float64 P ELEMENTS...
//
// reads P rows (all tensors of a row, one after the other, in that type) from
// standard input and writes the combined row.
// horovod/common/ops/adasum/adasum.h is included as it is; what it asks of the
// rest of Horovod are the few types below, and the messages between processes,
// which are copies here.
#include <array>
#include <cassert>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace horovod {
namespace common {

enum class DataType { HOROVOD_FLOAT16, HOROVOD_FLOAT32, HOROVOD_FLOAT64 };

struct TensorTableEntry {
  int process_set_id = 0;
};

struct Controller {
  int GetTypeSize(DataType type) const {
    return type == DataType::HOROVOD_FLOAT64 ? 8 : 4;
  }
};

struct ProcessSet {
  std::unique_ptr<Controller> controller = std::make_unique<Controller>();
};

struct ProcessSetTable {
  ProcessSet& Get(int /*id*/) { return set; }
  ProcessSet set;
};

struct ParameterManager {
  int64_t TensorFusionThresholdBytes() const { return 1 << 20; }
};

struct HorovodGlobalState {
  ParameterManager parameter_manager;
  ProcessSetTable process_set_table;
};

}  // namespace common
}  // namespace horovod

// The path of adasum.h, which the compiler is told.
#include HOROVOD_ADASUM

namespace {

using horovod::common::DataType;
using horovod::common::HorovodGlobalState;
using horovod::common::TensorTableEntry;

// What one thread gives the others, and when all of them have given it.
class Exchange {
 public:
  explicit Exchange(int size) : size_(size), given_(size) {}

  // Every thread calls it with what it gives, and gets what all gave.
  std::vector<const void*> Meet(int rank, const void* mine) {
    std::unique_lock<std::mutex> lock(mutex_);
    given_[rank] = mine;
    Wait(&lock);
    return given_;
  }
  // Every thread has read what it needs.
  void Part() {
    std::unique_lock<std::mutex> lock(mutex_);
    Wait(&lock);
  }

 private:
  void Wait(std::unique_lock<std::mutex>* lock) {
    const int turn = turn_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++turn_;
      all_.notify_all();
      return;
    }
    all_.wait(*lock, [&] { return turn_ != turn; });
  }

  const int size_;
  std::mutex mutex_;
  std::condition_variable all_;
  std::vector<const void*> given_;
  int arrived_ = 0;
  int turn_ = 0;
};

// The communicator of a level: the ranks that differ in its low bits only.
using Communicator = int;

class Rank : public horovod::common::Adasum<Communicator> {
 public:
  Rank(int rank, int size, Exchange* exchange, HorovodGlobalState* state)
      : Adasum(state),
        rank_(rank),
        size_(size),
        exchange_(exchange),
        state_(state) {}

  void Run(DataType type, std::vector<int> counts, void* row, void* scratch) {
    std::vector<TensorTableEntry> entries(counts.size());
    std::vector<Communicator> levels;
    for (int level = 1; level < size_; level <<= 1) levels.push_back(2 * level);
    DispatchFusedAllreduce(entries, row, scratch, counts, 1, size_, 0,
                           levels.data(), type, state_);
  }

 protected:
  void PointToPointSendRecv(void* input, int64_t /*input_bytes*/, void* output,
                            int64_t output_bytes, DataType /*type*/, int other,
                            int /*tag*/, Communicator /*communicator*/,
                            HorovodGlobalState* /*state*/) override {
    const std::vector<const void*> all = exchange_->Meet(rank_, input);
    std::memcpy(output, all[other], output_bytes);
    exchange_->Part();
  }

  void SumAllreduceWithComm(std::vector<TensorTableEntry>& /*entries*/,
                            void* data, int count, DataType /*type*/,
                            Communicator group,
                            HorovodGlobalState* /*state*/) override {
    const std::vector<const void*> all = exchange_->Meet(rank_, data);
    std::vector<double> sums(count, 0.0);
    const int first = rank_ / group * group;
    for (int other = first; other < first + group; ++other) {
      const double* values = static_cast<const double*>(all[other]);
      for (int i = 0; i < count; ++i) sums[i] += values[i];
    }
    exchange_->Part();
    std::memcpy(data, sums.data(), count * sizeof(double));
  }

  int GetLocalRankWithComm(Communicator /*communicator*/) override {
    return rank_;
  }
  int GetSizeWithComm(Communicator /*communicator*/) override { return size_; }

 private:
  const int rank_;
  const int size_;
  Exchange* const exchange_;
  HorovodGlobalState* const state_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const bool wide = std::string(argv[1]) == "float64";
  const int size = std::atoi(argv[2]);
  std::vector<int> counts;
  size_t elements = 0;
  for (int i = 3; i < argc; ++i) {
    counts.push_back(std::atoi(argv[i]));
    elements += counts.back();
  }
  const size_t bytes = elements * (wide ? 8 : 4);
  std::vector<std::vector<char>> rows(size, std::vector<char>(bytes));
  for (std::vector<char>& row : rows) {
    if (std::fread(row.data(), 1, bytes, stdin) != bytes) return 3;
  }
  Exchange exchange(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      HorovodGlobalState state;
      std::vector<char> scratch(bytes);
      Rank(rank, size, &exchange, &state)
          .Run(wide ? DataType::HOROVOD_FLOAT64 : DataType::HOROVOD_FLOAT32,
               counts, rows[rank].data(), scratch.data());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<char>& row : rows) {
    if (row != rows[0]) return 4;  // all ranks end with the same
  }
  std::fwrite(rows[0].data(), 1, bytes, stdout);
  return 0;
}
