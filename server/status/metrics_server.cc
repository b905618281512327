// Which page answers which path, and with which headers.
#include "server/status/metrics_server.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/base/address.h"
#include "server/metrics/metrics.h"
#include "server/status/http_server.h"
#include "server/status/status_page_html.h"

namespace agg {
namespace {

HttpResponse Page() {
  HttpResponse page;
  page.content_type = "text/html; charset=utf-8";
  page.body = std::string(StatusPageHtml());
  page.content_security_policy =
      absl::StrCat(StatusPagePolicy(), "; frame-ancestors 'none'");
  return page;
}

HttpResponse Json(std::string body) {
  HttpResponse response;
  response.content_type = "application/json";
  response.body = std::move(body);
  return response;
}

HttpResponse Text(int status, std::string body) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

HttpResponse Ready(const MetricsPages& pages, bool in_words) {
  const absl::Status status =
      pages.ready == nullptr ? absl::OkStatus() : pages.ready();
  if (!in_words) return status.ok() ? Text(200, "ok\n") : Text(503, "no\n");
  if (status.ok()) {
    const std::string note = pages.note == nullptr ? "" : pages.note();
    return Text(200, note.empty() ? "ok\n" : absl::StrCat("ok: ", note, "\n"));
  }
  return Text(503, absl::StrCat(status.message(), "\n"));
}

HttpResponse Refused(const absl::Status& status) {
  if (!absl::IsUnauthenticated(status)) {
    return Text(
        403,
        "this needs the role observer or admin, /metrics the role metrics or "
        "one of these\n");
  }
  HttpResponse response = Text(
      401,
      "this job wants to know who asks: Authorization: Bearer TOKEN, of an "
      "identity with the role observer or admin, or metrics for /metrics; in a "
      "browser the token is the password\n");
  response.authenticate = {"Bearer realm=\"agg_server\"",
                           "Basic realm=\"agg_server\", charset=\"UTF-8\""};
  return response;
}

// Prometheus 3 refuses a scrape whose type lacks the version.
HttpResponse Scrape(const HttpRequest& request,
                    const std::function<std::string()>& expose,
                    const MetricsPages& pages) {
  HttpResponse response;
  // HEAD shows nobody what the text says.
  if (pages.on_scrape != nullptr && !request.is_head) {
    response.sent = pages.on_scrape(request.from);
  }
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = expose();
  return response;
}

// For who may read it.
HttpResponse Answer(const HttpRequest& request,
                    const std::function<std::string()>& expose,
                    const MetricsPages& pages) {
  if (request.path == "/metrics") return Scrape(request, expose, pages);
  if (request.path == "/healthz") return Text(200, "ok\n");
  if (request.path == "/readyz") return Ready(pages, /*in_words=*/true);
  if (pages.status_json != nullptr) {
    if (request.path == "/") return Page();
    if (request.path == "/status.json") {
      return Json(pages.status_json(request.after));
    }
  }
  if (request.path == "/trace.json" && pages.trace_json != nullptr) {
    return Json(pages.trace_json());
  }
  return Text(404, "not found; there are / /metrics /healthz /readyz\n");
}

HttpResponse AnswerWhoMay(const HttpRequest& request,
                          const std::function<std::string()>& expose,
                          const MetricsPages& pages) {
  if (pages.admit_host != nullptr) {
    const absl::Status host = pages.admit_host(request.host, request.from);
    if (!host.ok()) return Text(421, absl::StrCat(host.message(), "\n"));
  }
  if (pages.admit == nullptr) return Answer(request, expose, pages);
  const bool health = request.path == "/healthz" || request.path == "/readyz";
  const bool open = health && pages.open_health;
  // A probe without a token is no attempt that anybody has to account for.
  if (open && request.authorization.empty()) {
    return request.path == "/healthz" ? Text(200, "ok\n")
                                      : Ready(pages, /*in_words=*/false);
  }
  const bool scrapes =
      request.path == "/metrics" && pages.admit_scrape != nullptr;
  const absl::Status may =
      scrapes ? pages.admit_scrape(request.authorization, request.from)
              : pages.admit(request.authorization, request.from);
  return may.ok() ? Answer(request, expose, pages) : Refused(may);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& bind, int port, const Metrics& metrics,
    MetricsPages pages, const HttpTransport& transport) {
  const absl::StatusOr<std::string> host = ParseHost(bind);
  if (!host.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics.bind is ", host.status().message()));
  }
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics.port is ", port, "; allowed: 0 to 65535"));
  }
  absl::StatusOr<std::unique_ptr<HttpServer>> server = HttpServer::Start(
      *host, port,
      [expose = metrics.Exposer(),
       pages = std::move(pages)](const HttpRequest& request) {
        return AnswerWhoMay(request, expose, pages);
      },
      HttpLimits(), transport);
  if (!server.ok()) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", FormatAddress({*host, port}),
                     ": ", server.status().message(),
                     "; metrics.port or --metrics_port names another one, and "
                     "--metrics_port=0 any free one"));
  }
  return absl::WrapUnique(new MetricsServer(*std::move(server)));
}

MetricsServer::MetricsServer(std::unique_ptr<HttpServer> server)
    : server_(std::move(server)) {}
MetricsServer::~MetricsServer() = default;
int MetricsServer::port() const { return server_->port(); }

}  // namespace agg
