// A function for each kind of thing that a configuration names.
#include "worker_client/tools/doctor_config.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "server/access/identities.h"
#include "server/base/address.h"
#include "server/base/field_error.h"
#include "server/base/file_descriptor.h"
#include "server/base/token_file.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/config/config_text.h"
#include "server/config/host_budget.h"
#include "server/config/options.h"
#include "server/http_rules.h"
#include "server/shard/memory_plan.h"
#include "server/tls/tls_diagnosis.h"
#include "server/tls/tls_files.h"

namespace agg {

MachineFacts ThisMachine() {
  const HostMemory memory = GrantedMemory();
  return {memory.bytes, memory.source};
}

namespace {

constexpr absl::Duration kLookUp = absl::Seconds(2);
// As AggCertificateExpires has it.
constexpr absl::Duration kRenewBefore = absl::Hours(14 * 24);

std::string Mebibytes(int64_t bytes) {
  return absl::StrCat(bytes >> 20, " MiB");
}

void AddLines(const absl::Status& status, Findings* findings) {
  for (absl::string_view line :
       absl::StrSplit(status.message(), '\n', absl::SkipEmpty())) {
    findings->Add(Severity::kError, std::string(line),
                  "agg_server does not start with it");
  }
}

// The options as agg_server makes them; not, with findings, where it would not
// start.
bool ReadOptions(const std::string& path, ServerOptions* options,
                 Findings* findings) {
  const absl::StatusOr<std::string> text = ReadConfigFile(path);
  if (!text.ok()) {
    AddLines(text.status(), findings);
    return false;
  }
  FieldErrors errors;
  v1::JobConfig config;
  if (errors.Take(ParseJobConfig(*text, path, &errors), &config)) {
    errors.Take(MakeServerOptions(config), options);
  }
  AddLines(errors.status(), findings);
  return errors.empty();
}

// Addresses and ports.

std::string HostText(const sockaddr* address) {
  char host[NI_MAXHOST] = "";
  const socklen_t size = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6)
                                                        : sizeof(sockaddr_in);
  if (getnameinfo(address, size, host, sizeof(host), nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    return "";
  }
  return host;
}

// Numeric, of all interfaces that are up.
std::vector<std::string> OwnHosts() {
  std::vector<std::string> hosts;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return hosts;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family == AF_INET || family == AF_INET6) {
      hosts.push_back(HostText(one->ifa_addr));
    }
  }
  freeifaddrs(list);
  return hosts;
}

bool IsOwn(const SocketAddress& address, const std::vector<std::string>& own) {
  const std::string host =
      HostText(reinterpret_cast<const sockaddr*>(&address.bytes));
  return IsLoopback(host) || std::count(own.begin(), own.end(), host) > 0;
}

// Why nobody can listen there now; "": one can.
std::string WhyNotBound(const SocketAddress& address) {
  const FileDescriptor socket(
      ::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!socket.valid() ||
      setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) !=
          0 ||
      bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.bytes),
           address.size) != 0 ||
      listen(socket.get(), 1) != 0) {
    return std::strerror(errno);
  }
  return "";
}

void SetPort(int port, SocketAddress* address) {
  if (address->bytes.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&address->bytes)->sin6_port =
        htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in*>(&address->bytes)->sin_port =
        htons(static_cast<uint16_t>(port));
  }
}

void CheckPort(const std::string& what, const std::string& field, int port,
               const SocketAddress& address, Findings* findings) {
  SocketAddress with_port = address;
  SetPort(port, &with_port);
  const std::string why = WhyNotBound(with_port);
  if (why.empty()) return;
  findings->Add(
      Severity::kError,
      absl::StrCat(field, ": nobody can listen on port ", port, " of ", what,
                   " here: ", why),
      "end what has it (ss -ltnp), which may be this job, or give the job "
      "another port; below 1024 a process needs CAP_NET_BIND_SERVICE");
}

// Where the server has its HTTP port, by the server's own rules.
void CheckMetricsPort(const ServerOptions& options, int ordinal,
                      const std::string& host, absl::Time now,
                      Findings* findings) {
  if (options.metrics.port == 0) return;
  // Without --bind gRPC is on loopback.
  const std::string bind = RulesOfHttp(options.security, options.metrics.bind,
                                       host == "localhost" ? "127.0.0.1" : host)
                               .bind;
  const int port = HttpPort(options.metrics.port, options.shards, ordinal);
  if (port > 65535) {
    findings->Add(Severity::kError,
                  absl::StrCat("metrics.port: that of shard ", ordinal,
                               " would be ", port),
                  "shards of one host have ports that follow each other, up to "
                  "65535");
    return;
  }
  const std::vector<SocketAddress> found =
      ResolveHost({bind, port}, now + kLookUp);
  if (found.empty()) {
    findings->Add(Severity::kError,
                  absl::StrCat("metrics.bind is ", Quoted(bind),
                               ": the host cannot be looked up here within ",
                               absl::FormatDuration(kLookUp)),
                  "correct the name, or give an address of this machine");
    return;
  }
  CheckPort(bind, "metrics.port", port, found.front(), findings);
}

// The ordinals of the shards of this machine.
std::vector<int> CheckAddresses(const ServerOptions& options, absl::Time now,
                                Findings* findings) {
  const std::vector<std::string> own_hosts = OwnHosts();
  std::vector<int> own;
  for (size_t s = 0; s < options.shards.size(); ++s) {
    const std::string field =
        absl::StrCat("shards[", s, "] is ", Quoted(options.shards[s]));
    const absl::StatusOr<Address> address = ParseAddress(options.shards[s]);
    if (!address.ok()) continue;  // MakeServerOptions has said so
    const std::vector<SocketAddress> found =
        ResolveHost(*address, now + kLookUp);
    if (found.empty()) {
      findings->Add(Severity::kError,
                    absl::StrCat(field,
                                 ": the host cannot be looked up here "
                                 "within ",
                                 absl::FormatDuration(kLookUp)),
                    "correct the name, or its entry in DNS or /etc/hosts; a "
                    "pod's name is there once the pod is");
      continue;
    }
    if (!IsOwn(found.front(), own_hosts)) continue;
    CheckPort(address->host, field, address->port, found.front(), findings);
    CheckMetricsPort(options, static_cast<int>(s), address->host, now,
                     findings);
    own.push_back(static_cast<int>(s));
  }
  if (own.empty()) {
    findings->Add(Severity::kNote,
                  "none of the shards has an address of this machine: ports "
                  "are not tried, and what follows is about this machine's "
                  "files and memory",
                  "run it where the shards run");
  }
  return own;
}

void CheckExposure(const ServerOptions& options, Findings* findings) {
  if (options.security.tls()) return;
  for (const std::string& shard : options.shards) {
    const absl::StatusOr<Address> address = ParseAddress(shard);
    if (!address.ok() || IsLoopback(address->host)) continue;
    findings->Add(
        options.security.insecure ? Severity::kNote : Severity::kError,
        absl::StrCat(
            "shards are beyond loopback (", shard,
            "), without "
            "security.tls",
            options.security.insecure ? ": security.insecure means it" : ""),
        options.security.insecure
            ? ""
            : "agg_server refuses to listen there: security { tls { .. } }, or "
              "security { insecure: true } where the network is the job's own");
    return;
  }
}

// Folders and files.

bool MayAccess(const std::string& path, int mode) {
  return faccessat(AT_FDCWD, path.c_str(), mode, AT_EACCESS) == 0;
}

// `mode`: what has to be allowed, of R_OK, W_OK and X_OK, and in `words`.
void CheckFolder(const std::string& field, const std::string& path, int mode,
                 const std::string& words, Severity severity,
                 Findings* findings) {
  struct stat about;
  std::string why;
  if (stat(path.c_str(), &about) != 0) {
    why = std::strerror(errno);
  } else if (!S_ISDIR(about.st_mode)) {
    why = "it is no folder";
  } else if (!MayAccess(path, mode)) {
    why = absl::StrCat("this user (", geteuid(), ") may not ", words, ": ",
                       std::strerror(errno));
  }
  if (why.empty()) return;
  findings->Add(severity, absl::StrCat(field, " is ", Quoted(path), ": ", why),
                "make it, mount it, or chown it to the user that agg_server "
                "runs as; run the doctor as that user");
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A file that is made if it is not there. One that is there is written without
// its folder, until it is full and is renamed.
void CheckOutput(const std::string& field, const std::string& path,
                 Findings* findings) {
  if (path.empty()) return;
  struct stat about;
  const bool there = stat(path.c_str(), &about) == 0;
  const bool writable =
      there && S_ISREG(about.st_mode) && MayAccess(path, W_OK);
  CheckFolder(absl::StrCat("the folder of ", field), FolderOf(path),
              W_OK | X_OK, "write",
              writable ? Severity::kWarning : Severity::kError, findings);
  if (!there || writable) return;
  findings->Add(
      Severity::kError,
      absl::StrCat(field, " is ", Quoted(path),
                   S_ISREG(about.st_mode) ? ": this user may not write it"
                                          : ": it is no regular file"),
      "chown it to the user that agg_server runs as");
}

// A secret: who else may read it. The server logs that of tokens.
void CheckSecrecy(const std::string& field, const std::string& path,
                  Findings* findings) {
  struct stat about;
  if (stat(path.c_str(), &about) != 0) return;
  if (!OthersMayRead(about.st_mode, about.st_uid == geteuid())) return;
  findings->Add(
      Severity::kWarning,
      absl::StrFormat("%s is %s: others than its owner may read it (mode %04o)",
                      field, Quoted(path), about.st_mode & 07777),
      "chmod 600 it, and replace what it says if others have had it");
}

void CheckTokens(const std::string& field, const std::string& path,
                 Findings* findings) {
  if (path.empty()) return;
  const absl::StatusOr<std::string> text = TokenFile::SystemReader()(path);
  absl::Status status = text.status();
  if (status.ok()) {
    const absl::StatusOr<std::vector<std::string>> tokens = ParseTokens(*text);
    status = tokens.status();
    if (tokens.ok() && tokens->empty()) {
      status = absl::InvalidArgumentError("it has no token");
    }
  }
  if (!status.ok()) {
    findings->Add(
        Severity::kError,
        absl::StrCat(field, " is ", Quoted(path), ": ", status.message()),
        "write a token into it (deploy/docs/security.md, Who may do what), "
        "for the user that agg_server runs as");
    return;
  }
  CheckSecrecy(field, path, findings);
}

void CheckAccess(const AccessOptions& access, Findings* findings) {
  CheckTokens("security.shard_token_file", access.shard_token_file, findings);
  for (size_t i = 0; i < access.identities.size(); ++i) {
    CheckTokens(absl::StrCat("security.identities[", i, "].token_file"),
                access.identities[i].token_file, findings);
  }
  if (!access.denied_file.empty()) {
    const absl::StatusOr<std::string> text =
        TokenFile::SystemReader()(access.denied_file);
    const absl::Status status =
        text.ok() ? ParseDenyRules(*text).status() : text.status();
    if (!status.ok()) {
      findings->Add(
          Severity::kError,
          absl::StrCat("security.denied_file is ", Quoted(access.denied_file),
                       ": ", status.message()),
          "an empty file denies nobody");
    }
  }
  CheckOutput("security.audit.path", access.audit.path, findings);
}

// The names in a folder, of which there are none if it is not there.
std::vector<std::string> NamesIn(const std::string& folder,
                                 Findings* findings) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    findings->Add(
        Severity::kError,
        absl::StrCat("checkpoint.path: ", folder,
                     " cannot be listed: ", error.message()),
        "make it readable for the user that agg_server runs as; a shard that "
        "cannot list its checkpoints keeps the job from beginning");
  }
  return names;
}

// Sealed checkpoints of the job that this machine's folder has, newest first.
std::vector<CheckpointId> Sealed(const std::string& path,
                                 const std::string& job, Findings* findings) {
  std::vector<CheckpointId> ids;
  const std::string folder = absl::StrCat(path, "/", job);
  for (const std::string& name : NamesIn(folder, findings)) {
    const absl::optional<CheckpointId> id = ParseCheckpointFolderName(name);
    std::error_code error;
    if (id.has_value() &&
        std::filesystem::exists(
            absl::StrCat(folder, "/", name, "/", kManifestFile), error)) {
      ids.push_back(*id);
    }
  }
  std::sort(ids.begin(), ids.end(),
            [](const CheckpointId& a, const CheckpointId& b) { return b < a; });
  return ids;
}

// What a start would go on from, as far as this machine's folder tells. `own`:
// the job's own checkpoints.
void LookAtCheckpoints(const ServerOptions& options,
                       const std::vector<CheckpointId>& own,
                       Findings* findings) {
  const CheckpointOptions& checkpoint = options.coordinator.checkpoint;
  std::string job = options.coordinator.job;
  std::vector<CheckpointId> sealed = own;
  if (sealed.empty() && !checkpoint.restore_job.empty()) {
    job = checkpoint.restore_job;
    sealed = Sealed(options.checkpoint_path, job, findings);
  }
  if (sealed.empty()) {
    findings->Add(Severity::kNote,
                  "this machine's folder has no sealed checkpoint: if no "
                  "shard's has one, the job begins anew, by a seed");
    return;
  }
  const std::string name = CheckpointFolderName(sealed.front());
  const std::string folder =
      absl::StrCat(options.checkpoint_path, "/", job, "/", name);
  std::vector<std::string> parts;
  for (const std::string& file : NamesIn(folder, findings)) {
    if (absl::StartsWith(file, "part-") && absl::EndsWith(file, ".npz")) {
      parts.push_back(file);
    }
  }
  std::sort(parts.begin(), parts.end());
  findings->Add(Severity::kNote,
                absl::StrCat(checkpoint.restore
                                 ? "a start goes on from the newest checkpoint "
                                   "that any shard sees; here that is "
                                 : "checkpoint.restore is \"none\": a start "
                                   "begins anew beside ",
                             folder, ", with ", absl::StrJoin(parts, ", ")));
}

void CheckFiles(const ServerOptions& options,
                const std::vector<CheckpointId>& sealed, Findings* findings) {
  const std::string& path = options.checkpoint_path;
  if (!path.empty()) {
    CheckFolder("checkpoint.path", path, R_OK | W_OK | X_OK, "read and write",
                Severity::kError, findings);
    const std::string& lender = options.coordinator.checkpoint.restore_job;
    if (!lender.empty() && !MayAccess(absl::StrCat(path, "/", lender), R_OK)) {
      findings->Add(
          Severity::kError,
          absl::StrCat("checkpoint.restore_job is ", Quoted(lender), ": ", path,
                       "/", lender, ": ", std::strerror(errno)),
          "mount the folder that has that job's checkpoints, on "
          "each shard's host");
    }
    LookAtCheckpoints(options, sealed, findings);
  }
  CheckOutput("round_log.path", options.round_log.path, findings);
  CheckAccess(options.access, findings);
}

// Certificates.

void CheckEnd(const std::string& field, const std::string& path,
              absl::Time ends, absl::Time now, Findings* findings) {
  if (ends - now >= kRenewBefore) return;
  findings->Add(Severity::kWarning,
                absl::StrCat(field, " is ", Quoted(path), ": it ends on ",
                             absl::FormatTime("%Y-%m-%d %H:%M UTC", ends,
                                              absl::UTCTimeZone())),
                "renew it; agg_server takes the new file while it runs");
}

void CheckTls(const ServerOptions& options, const std::vector<int>& own,
              absl::Time now, Findings* findings) {
  const SecuritySettings& security = options.security;
  if (!security.tls()) return;
  CheckSecrecy(security.files.key_field, security.files.key, findings);
  const absl::StatusOr<TlsContents> contents =
      ReadTlsFiles(security.files, now);
  AddLines(contents.status(), findings);
  if (contents.ok()) {
    CheckEnd(security.files.certificate_field, security.files.certificate,
             contents->expires.certificate, now, findings);
    CheckEnd(security.files.ca_field, security.files.ca, contents->expires.ca,
             now, findings);
    for (int ordinal : own) {
      const absl::StatusOr<Address> address =
          ParseAddress(options.shards[ordinal]);
      const std::string why = WhyNotFor(contents->certificate, address->host);
      if (why.empty()) continue;
      findings->Add(Severity::kError,
                    absl::StrCat(security.files.certificate_field, " is ",
                                 Quoted(security.files.certificate), ": it ",
                                 why, ", the host of shard ", ordinal),
                    "issue one with the host of the shard's address among its "
                    "names, or shards and workers refuse it");
    }
  }
  if (contents.ok()) AddLines(CheckTlsOptions(security.peers, now), findings);
}

// Memory.

// The plan of the largest shard, as it will be with all workers: of slices and
// tensors, whose number is the model's, nothing is counted.
MemoryPlan PlanOf(const ServerOptions& options, int64_t parameters) {
  const ShardOptions& shard = options.shard;
  const int64_t elements =
      (parameters + options.shards.size() - 1) / options.shards.size();
  MemoryPlan plan =
      PlanMemory(elements, options.coordinator.max_workers, shard.push_dtype,
                 shard.pull_dtype, shard.optimizer, /*needs=*/{});
  if (!options.checkpoint_path.empty()) {
    plan.host.checkpoint = plan.host.master + plan.host.state;
    if (plan.host.state > 0) plan.host.transfer = plan.host.master;
  }
  if (shard.replicated) {
    PlanCopies(elements, elements, shard.optimizer, /*needs=*/{}, &plan);
  }
  return plan;
}

// Checkpoints that are still to be written until the oldest one is removed. One
// more than are kept is there while it is written.
int64_t ToCome(const CheckpointOptions& checkpoint,
               const std::vector<CheckpointId>& sealed) {
  std::set<uint64_t> versions;
  // Those that a job which begins anew finds are never removed.
  if (checkpoint.restore) {
    for (const CheckpointId& id : sealed) versions.insert(id.version);
  }
  const int64_t keep = checkpoint.keep;
  return keep + 1 - std::min(static_cast<int64_t>(versions.size()), keep);
}

// `bytes`: of one checkpoint's parts that are written here.
void CheckDisk(const ServerOptions& options,
               const std::vector<CheckpointId>& sealed, int64_t bytes,
               Findings* findings) {
  struct statvfs disk;
  const std::string& path = options.checkpoint_path;
  if (path.empty() || statvfs(path.c_str(), &disk) != 0) return;
  const int64_t more = ToCome(options.coordinator.checkpoint, sealed);
  const auto free =
      static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  if (free >= more * bytes) return;
  findings->Add(Severity::kWarning,
                absl::StrCat("checkpoint.path is ", Quoted(path), ": ",
                             Mebibytes(free), " are free, and the ", more,
                             " checkpoints that are written until the oldest "
                             "one is removed take ",
                             Mebibytes(more * bytes)),
                "a larger disk, or a smaller checkpoint.keep");
}

std::string Plural(int64_t shards) {
  return shards == 1 ? "1 shard" : absl::StrCat(shards, " shards");
}

void CheckMemory(const ServerOptions& options, const std::vector<int>& own,
                 const std::vector<CheckpointId>& sealed, int64_t parameters,
                 const MachineFacts& machine, Findings* findings) {
  const int64_t configured = options.shard.memory_budget.host_bytes;
  const int64_t granted = machine.granted_bytes;
  const int64_t budget = configured != 0 ? configured : DefaultBudget(granted);
  const std::string granted_text =
      absl::StrCat(Mebibytes(granted), " (", machine.granted_source, ")");
  const auto shards = static_cast<int64_t>(std::max<size_t>(own.size(), 1));
  if (granted > 0 && configured * shards > granted) {
    findings->Add(
        Severity::kError,
        absl::StrCat("memory_budget_bytes is ", configured, " (",
                     Mebibytes(configured), "), of ", Plural(shards),
                     " here; this machine or container grants ", granted_text),
        "set it to the part of that which each shard may take, or move shards "
        "to other machines");
  }
  if (parameters == 0) {
    findings->Add(
        Severity::kNote,
        absl::StrCat("each of ", Plural(shards), " here may plan ",
                     Mebibytes(budget), " of the ", granted_text, " there are"),
        "--parameters=N, those of the model, compares its plan");
    return;
  }
  const MemoryPlan plan = PlanOf(options, parameters);
  MemoryBudget limit;
  limit.host_bytes = budget;
  const absl::Status status = CheckMemoryPlan(plan, limit);
  if (!status.ok()) {
    findings->Add(Severity::kError, std::string(status.message()),
                  "workers are refused with these numbers when they join");
  } else {
    findings->Add(Severity::kNote,
                  absl::StrCat("the plan of a shard with all ",
                               options.coordinator.max_workers,
                               " workers: ", DescribeMemoryPlan(plan),
                               ", of a budget of ", Mebibytes(budget)));
  }
  if (granted > 0 && plan.host.total() * shards > granted) {
    findings->Add(
        Severity::kError,
        absl::StrCat("the plans of ", Plural(shards), " here, ",
                     Mebibytes(plan.host.total()), " each, are more than the ",
                     granted_text, " there are"),
        "move shards to other machines, or see the terms above");
  }
  CheckDisk(options, sealed, shards * (plan.host.master + plan.host.state),
            findings);
}

}  // namespace

Findings CheckConfigFile(const std::string& path, int64_t parameters,
                         const MachineFacts& machine, absl::Time now) {
  Findings findings;
  ServerOptions options;
  if (!ReadOptions(path, &options, &findings)) return findings;
  const std::vector<int> own = CheckAddresses(options, now, &findings);
  CheckExposure(options, &findings);
  std::vector<CheckpointId> sealed;
  if (!options.checkpoint_path.empty()) {
    sealed =
        Sealed(options.checkpoint_path, options.coordinator.job, &findings);
  }
  CheckFiles(options, sealed, &findings);
  CheckTls(options, own, now, &findings);
  CheckMemory(options, own, sealed, parameters, machine, &findings);
  if (options.backend != "cpu") {
    findings.Add(Severity::kNote,
                 absl::StrCat("the backend is ", Quoted(options.backend),
                              ": the device and its memory are not looked at"),
                 "agg_server says at its start whether it can use it");
  }
  return findings;
}

}  // namespace agg
