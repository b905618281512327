// The bytes of slices as a fake server lands and sends them.
#ifndef AGG_TESTS_WORKER_CLIENT_FAKE_PAYLOAD_H_
#define AGG_TESTS_WORKER_CLIENT_FAKE_PAYLOAD_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/agg.pb.h"

namespace agg {

// The values as elements of `dtype`, little endian.
std::string Narrow(const std::vector<float>& values, v1::DType dtype);

// The reverse.
std::vector<float> Widen(absl::string_view bytes, v1::DType dtype);

}  // namespace agg

#endif  // AGG_TESTS_WORKER_CLIENT_FAKE_PAYLOAD_H_
