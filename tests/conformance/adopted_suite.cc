// Adopt: buffers whose host side is memory that somebody else has mapped give
// what the backend's own give.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/conformance/update_run.h"

namespace agg {
namespace {

// Zeros that other processes could map.
class SharedPages {
 public:
  explicit SharedPages(int64_t num_bytes)
      : num_bytes_(static_cast<size_t>(num_bytes)),
        data_(
            static_cast<char*>(mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~SharedPages() { munmap(data_, num_bytes_); }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  char* data() const { return data_; }

 private:
  const size_t num_bytes_;
  char* const data_;
};

struct AdoptedBuffers {
  std::vector<std::unique_ptr<SharedPages>> pages;  // outlive the buffers
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<const Buffer*> pointers;

  void Add(Backend* backend, BufferUse use, int64_t num_bytes) {
    pages.push_back(std::make_unique<SharedPages>(num_bytes));
    absl::Status registered;
    auto buffer =
        backend->Adopt(use, pages.back()->data(), num_bytes, &registered);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_TRUE(registered.ok()) << registered;
    EXPECT_EQ((*buffer)->host(), pages.back()->data());
    EXPECT_EQ((*buffer)->num_bytes(), num_bytes);
    buffers.push_back(*std::move(buffer));
    pointers.push_back(buffers.back().get());
  }
};

std::vector<double> GramOf(Backend* backend, DType dtype,
                           absl::Span<const Buffer* const> rows,
                           const std::vector<ElementRange>& ranges) {
  std::vector<double> hi(ranges.size() *
                         PackedGramSize(static_cast<int64_t>(rows.size())));
  GramRequest request;
  request.rows = rows;
  request.dtype = dtype;
  request.ranges = ranges;
  request.hi = absl::MakeSpan(hi);
  const absl::Status status = backend->Gram(request);
  EXPECT_TRUE(status.ok()) << status;
  return hi;
}

TEST_P(BackendConformance, AdoptedMemoryHasTheBitsOfTheBackendsOwn) {
  constexpr int kRows = 3;
  for (const DType dtype : kRowDTypes) {
    SCOPED_TRACE(static_cast<int>(dtype));
    const std::vector<ElementRange> ranges = LayOut({700, 1, 4000}, dtype);
    const int64_t num_elements = LayoutElements(ranges);
    const TestRows own = RandomRows(dtype, kRows, num_elements);
    AdoptedBuffers rows, version;
    for (int i = 0; i < kRows; ++i) {
      rows.Add(backend_.get(), BufferUse::kRow, own.rows()[i]->num_bytes());
      ASSERT_EQ(rows.buffers.size(), i + 1u);
      std::memcpy(rows.pages[i]->data(), own.host(i),
                  static_cast<size_t>(own.rows()[i]->num_bytes()));
      for (const ElementRange& range : ranges) {
        backend_->RowLanded(*rows.buffers[i], dtype, range);
      }
    }
    version.Add(backend_.get(), BufferUse::kSnapshot, num_elements * 4);
    ASSERT_EQ(version.buffers.size(), 1u);
    EXPECT_EQ(GramOf(backend_.get(), dtype, rows.pointers, ranges),
              GramOf(backend_.get(), dtype, own.rows(), ranges));
    const std::vector<double> coefficients = {0.5, -0.25, 2.0};
    UpdateRun expected(backend_.get(), OptimizerOptions(), ranges);
    UpdateRun adopted(backend_.get(), OptimizerOptions(), ranges);
    for (UpdateRun* run : {&expected, &adopted}) {
      run->Load(std::vector<float>(num_elements, 0.5f));
    }
    ASSERT_TRUE(expected.Update(own, coefficients, RangeStep()).ok());
    ASSERT_TRUE(adopted
                    .Update(own, coefficients, RangeStep(),
                            [&](UpdateRequest* request) {
                              request->rows = rows.pointers;
                              request->snapshot = version.buffers[0].get();
                            })
                    .ok());
    const std::vector<float> snapshot = expected.Snapshot();
    for (const ElementRange& range : ranges) {
      EXPECT_EQ(std::memcmp(version.pages[0]->data() + range.begin * 4,
                            snapshot.data() + range.begin,
                            static_cast<size_t>(range.num_elements) * 4),
                0);
    }
  }
}

}  // namespace
}  // namespace agg
