// Macros that return early with an error, as absl::Status functions do.
#ifndef AGG_SERVER_BASE_STATUS_MACROS_H_
#define AGG_SERVER_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function when the expression, an absl::Status, is
// not OK. The expression may have commas.
#define AGG_RETURN_IF_ERROR(...)                                     \
  do {                                                               \
    if (absl::Status agg_status = (__VA_ARGS__); !agg_status.ok()) { \
      return agg_status;                                             \
    }                                                                \
  } while (false)

// Assigns the value of an expression, an absl::StatusOr<T>, to `target`, which
// is a variable or declares one; returns from the enclosing function when there
// is none. The expression may have commas, `target` may not. It is two
// statements and a declaration: only a block may hold it, and two of them
// inside one argument of another macro do not compile.
#define AGG_ASSIGN_OR_RETURN(target, ...) \
  AGG_ASSIGN_OR_RETURN_AS(AGG_STATUS_NAME(__LINE__), target, __VA_ARGS__)

#define AGG_ASSIGN_OR_RETURN_AS(result, target, ...)   \
  auto result = (__VA_ARGS__);                         \
  if (!result.ok()) return std::move(result).status(); \
  target = *std::move(result)

#define AGG_STATUS_NAME(line) AGG_STATUS_NAME_OF(line)
#define AGG_STATUS_NAME_OF(line) agg_result_##line

#endif  // AGG_SERVER_BASE_STATUS_MACROS_H_
