// Checks of what a function requires of its callers.
#ifndef AGG_SERVER_BASE_DCHECK_H_
#define AGG_SERVER_BASE_DCHECK_H_

#include <cstdio>
#include <cstdlib>

// Ends the process if the condition is false, with file, line and condition on
// stderr. With NDEBUG it evaluates nothing, and names that only it uses still
// count as used. The condition must have no effect.
#ifdef NDEBUG
#define AGG_DCHECK(condition) static_cast<void>(false && (condition))
#else
#define AGG_DCHECK(condition) \
  ((condition) ? void() : ::agg::EndAfterDcheck(__FILE__, __LINE__, #condition))
#endif

namespace agg {

// Writes the line of a failed AGG_DCHECK and aborts.
[[noreturn]] inline void EndAfterDcheck(const char* file, int line,
                                        const char* condition) {
  std::fprintf(stderr, "%s:%d: AGG_DCHECK(%s) failed\n", file, line, condition);
  std::abort();
}

}  // namespace agg

#endif  // AGG_SERVER_BASE_DCHECK_H_
