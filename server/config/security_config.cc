// What fields need each other is checked here; files, where they are used.
#include "server/config/security_config.h"

#include "absl/strings/str_cat.h"
#include "server/base/address.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"

namespace agg {
namespace {

// Each look reads three files.
constexpr double kMinReloadSeconds = 0.01;

void CheckTls(const v1::JobConfig& config, FieldErrors* errors) {
  const v1::TlsConfig& tls = config.security().tls();
  if (tls.certificate().empty()) {
    errors->Add(FieldError("security.tls.certificate", "\"\"",
                           "the path of a PEM file"));
  }
  if (tls.key().empty()) {
    errors->Add(
        FieldError("security.tls.key", "\"\"", "the path of a PEM file"));
  }
  errors->Add(CheckField(
      IsFiniteAtLeast(tls.reload_seconds(), kMinReloadSeconds),
      "security.tls.reload_seconds", tls.reload_seconds(), "finite, >= 0.01"));
  // Shard 0 alone calls itself, too: a second coordinator would answer there.
  if (tls.ca().empty() && tls.client_ca().empty()) {
    errors->Add(FieldError("security.tls.ca", "\"\"",
                           "the path of a PEM file with the CA of the shards' "
                           "certificates, here or as client_ca"));
  }
  if (config.security().insecure()) {
    errors->Add(
        FieldError("security.insecure", "true", "without security.tls"));
  }
}

HttpSettings TakeHttp(const v1::SecurityConfig& security, FieldErrors* errors) {
  const v1::HttpConfig& http = security.http();
  HttpSettings settings;
  settings.insecure = http.insecure() || security.insecure();
  settings.asks = http.pages() == "identities";
  if (!settings.asks && http.pages() != "open") {
    errors->Add(FieldError("security.http.pages", Quoted(http.pages()),
                           "\"identities\", \"open\""));
  }
  if (settings.asks && security.identities().empty()) {
    errors->Add(FieldError("security.http.pages", "\"identities\"",
                           "only with security.identities"));
  }
  for (int i = 0; i < http.hosts_size(); ++i) {
    const std::string field = absl::StrCat("security.http.hosts[", i, "]");
    if (http.hosts(i) != "*") errors->Add(CheckHost(field, http.hosts(i)));
    settings.hosts.push_back(http.hosts(i));
  }
  if (http.tensors() == "shown") {
    settings.tensors = HttpSettings::Tensors::kShown;
  } else if (http.tensors() == "hidden") {
    settings.tensors = HttpSettings::Tensors::kHidden;
  } else if (http.tensors() != "auto") {
    errors->Add(FieldError("security.http.tensors", Quoted(http.tensors()),
                           "\"auto\", \"shown\", \"hidden\""));
  }
  return settings;
}

}  // namespace

void CompleteSecurity(v1::JobConfig* config) {
  v1::SecurityConfig* const security = config->mutable_security();
  v1::HttpConfig* const http = security->mutable_http();
  if (http->pages().empty()) {
    http->set_pages(security->identities().empty() ? "open" : "identities");
  }
  if (http->tensors().empty()) http->set_tensors("auto");
  if (!config->security().has_tls()) return;
  v1::TlsConfig* const tls = config->mutable_security()->mutable_tls();
  if (tls->reload_seconds() == 0.0) tls->set_reload_seconds(60.0);
}

absl::StatusOr<SecuritySettings> MakeSecurity(const v1::JobConfig& config) {
  AGG_DCHECK(!config.security().http().pages().empty());
  SecuritySettings settings;
  settings.insecure = config.security().insecure();
  FieldErrors errors;
  settings.http = TakeHttp(config.security(), &errors);
  if (config.security().has_tls()) CheckTls(config, &errors);
  if (!errors.empty()) return errors.status();
  if (!config.security().has_tls()) return settings;
  const v1::TlsConfig& tls = config.security().tls();
  settings.files.certificate = tls.certificate();
  settings.files.key = tls.key();
  settings.files.ca = tls.client_ca();
  settings.files.certificate_field = "security.tls.certificate";
  settings.files.key_field = "security.tls.key";
  settings.files.ca_field = "security.tls.client_ca";
  settings.reload = absl::Seconds(tls.reload_seconds());
  settings.peers.ca = tls.ca().empty() ? tls.client_ca() : tls.ca();
  settings.peers.certificate = tls.certificate();
  settings.peers.key = tls.key();
  settings.peers.reload = settings.reload;
  return settings;
}

}  // namespace agg
