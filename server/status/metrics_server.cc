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

HttpResponse Ready(const MetricsPages& pages) {
  const absl::Status status =
      pages.ready == nullptr ? absl::OkStatus() : pages.ready();
  if (status.ok()) {
    const std::string note = pages.note == nullptr ? "" : pages.note();
    return Text(200, note.empty() ? "ok\n" : absl::StrCat("ok: ", note, "\n"));
  }
  return Text(503, absl::StrCat(status.message(), "\n"));
}

// Prometheus 3 refuses a scrape whose type lacks the version.
HttpResponse Scrape(std::string text) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = std::move(text);
  return response;
}

HttpResponse Answer(const HttpRequest& request,
                    const std::function<std::string()>& expose,
                    const MetricsPages& pages) {
  if (request.path == "/metrics") return Scrape(expose());
  if (request.path == "/healthz") return Text(200, "ok\n");
  if (request.path == "/readyz") return Ready(pages);
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

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& bind, int port, const Metrics& metrics,
    MetricsPages pages) {
  const absl::StatusOr<std::string> host = ParseHost(bind);
  if (!host.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics.bind is ", host.status().message()));
  }
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics.port is ", port, "; allowed: 0 to 65535"));
  }
  absl::StatusOr<std::unique_ptr<HttpServer>> server =
      HttpServer::Start(*host, port,
                        [expose = metrics.Exposer(),
                         pages = std::move(pages)](const HttpRequest& request) {
                          return Answer(request, expose, pages);
                        });
  if (!server.ok()) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", FormatAddress({*host, port}),
                     ": ", server.status().message()));
  }
  return absl::WrapUnique(new MetricsServer(*std::move(server)));
}

MetricsServer::MetricsServer(std::unique_ptr<HttpServer> server)
    : server_(std::move(server)) {}
MetricsServer::~MetricsServer() = default;
int MetricsServer::port() const { return server_->port(); }

}  // namespace agg
