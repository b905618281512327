// Files that are not a matrix of gradients, each with what its error must say.
#ifndef AGG_TESTS_WORKER_CLIENT_NPZ_MALFORMED_NPY_H_
#define AGG_TESTS_WORKER_CLIENT_NPZ_MALFORMED_NPY_H_

#include <string>
#include <vector>

namespace agg {

struct MalformedNpy {
  std::string name;
  std::string bytes;
  std::string message;  // a part of it
};

std::vector<MalformedNpy> MalformedNpyFiles();

}  // namespace agg

#endif  // AGG_TESTS_WORKER_CLIENT_NPZ_MALFORMED_NPY_H_
