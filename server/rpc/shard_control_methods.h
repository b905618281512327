// Which methods of ShardControl are callbacks. Apart from the service for the
// length of the type.
#ifndef AGG_SERVER_RPC_SHARD_CONTROL_METHODS_H_
#define AGG_SERVER_RPC_SHARD_CONTROL_METHODS_H_

#include "proto/control.grpc.pb.h"

namespace agg {

// All methods by callbacks, as v1::ShardControl::CallbackService has them, but
// Fetch with raw bytes, so that a frame is not copied.
using ShardControlMethods = v1::ShardControl::WithRawCallbackMethod_Fetch<
    v1::ShardControl::WithCallbackMethod_Attach<
        v1::ShardControl::WithCallbackMethod_SetManifest<
            v1::ShardControl::WithCallbackMethod_ReserveRow<
                v1::ShardControl::WithCallbackMethod_SetSession<
                    v1::ShardControl::WithCallbackMethod_RunPhase<
                        v1::ShardControl::WithCallbackMethod_Probe<
                            v1::ShardControl::WithCallbackMethod_GetManifest<
                                v1::ShardControl::WithCallbackMethod_SetFacts<
                                    v1::ShardControl::
                                        WithCallbackMethod_Replicate<
                                            v1::ShardControl::Service>>>>>>>>>>;

}  // namespace agg

#endif  // AGG_SERVER_RPC_SHARD_CONTROL_METHODS_H_
