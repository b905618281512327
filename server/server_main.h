// What agg_server does, for any compute backend.
#ifndef AGG_SERVER_SERVER_MAIN_H_
#define AGG_SERVER_SERVER_MAIN_H_

#include "kernels/backend_maker.h"

namespace agg {

// Runs one shard of a job until a signal or a lost device ends it. Returns the
// exit code: 0 after a drain, 1 for failures at run time, 2 for bad flags or a
// bad configuration. To be called once, by main, before any thread is started.
int ServerMain(int argc, char** argv, const BackendMaker& make_backend);

}  // namespace agg

#endif  // AGG_SERVER_SERVER_MAIN_H_
