#include "kernels/backend_factory.h"
#include "tests/e2e/loopback_job.h"

namespace agg {

BackendMaker FactoryBackends() { return &MakeBackend; }

}  // namespace agg
