// .npz files for tests: whole ones, and the means to make others.
#ifndef AGG_TESTS_WORKER_CLIENT_NPZ_NPZ_FILES_H_
#define AGG_TESTS_WORKER_CLIENT_NPZ_NPZ_FILES_H_

#include <string>
#include <utility>
#include <vector>

#include "worker_client/npz/npz.h"

namespace agg {

// A path in the test's temporary folder.
std::string TestPath(const std::string& name);

// One with each kind of shape.
std::vector<NpzTensor> SomeTensors();

// Runs a Python script, with NumPy as `np`, zipfile and sys, on arguments that
// need no quoting; whether it ended well.
bool RunPython(const std::string& script, const std::string& arguments);

// An archive of these members, deflated or stored; its path.
std::string ZipFile(
    const std::string& file,
    const std::vector<std::pair<std::string, std::string>>& members,
    bool deflated = false);

}  // namespace agg

#endif  // AGG_TESTS_WORKER_CLIENT_NPZ_NPZ_FILES_H_
