// Ports for servers that must know each other's before they start.
#ifndef AGG_TESTS_E2E_FREE_PORTS_H_
#define AGG_TESTS_E2E_FREE_PORTS_H_

#include <vector>

namespace agg {

// Different ports of loopback that were free a moment ago; ends the process if
// there are none.
std::vector<int> FreePorts(int number);

}  // namespace agg

#endif  // AGG_TESTS_E2E_FREE_PORTS_H_
