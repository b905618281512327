// W3C Trace Context's traceparent: the id of the span that a call belongs to.
#ifndef AGG_PROTO_TRACEPARENT_H_
#define AGG_PROTO_TRACEPARENT_H_

#include "absl/strings/string_view.h"

namespace agg {

// The name of the gRPC metadata entry, as of the HTTP header.
inline constexpr char kTraceparent[] = "traceparent";

// Whether `value` is one that may be used (W3C Trace Context, 3.2):
// "00-" 32 hex digits "-" 16 hex digits "-" 2 hex digits, lower case, neither
// id all zeros. A later version than 00 (but not ff) may go on with "-" and
// more, up to 128 characters of visible ASCII in all.
bool IsTraceparent(absl::string_view value);

}  // namespace agg

#endif  // AGG_PROTO_TRACEPARENT_H_
