// The status page: one HTML file without external resources, made of page/ at
// build time.
#ifndef AGG_SERVER_STATUS_STATUS_PAGE_HTML_H_
#define AGG_SERVER_STATUS_STATUS_PAGE_HTML_H_

#include "absl/strings/string_view.h"

namespace agg {

// Polls status.json next to it. With a JSON object instead of `null` in its
// <script id="data"> it is a report of that data instead, and sends no request.
absl::string_view StatusPageHtml();

// Its Content-Security-Policy, which a <meta> of the page holds, too.
absl::string_view StatusPagePolicy();

}  // namespace agg

#endif  // AGG_SERVER_STATUS_STATUS_PAGE_HTML_H_
