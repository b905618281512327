// Label values that Prometheus accepts.
#ifndef AGG_SERVER_BASE_UTF8_H_
#define AGG_SERVER_BASE_UTF8_H_

#include <string>

#include "absl/strings/string_view.h"

namespace agg {

// `value` with every byte that is not part of well-formed UTF-8 replaced by
// U+FFFD: one bad byte in a label value would make Prometheus refuse the whole
// scrape.
std::string ValidUtf8(absl::string_view value);

}  // namespace agg

#endif  // AGG_SERVER_BASE_UTF8_H_
