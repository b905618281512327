// The release that this tree is.
#ifndef AGG_SERVER_BASE_VERSION_H_
#define AGG_SERVER_BASE_VERSION_H_

namespace agg {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace agg

#endif  // AGG_SERVER_BASE_VERSION_H_
