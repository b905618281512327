// From the command line to a server that runs until a signal. What is decided
// here is about the process: malloc, signals, exit codes, files of ports.
#include "server/server_main.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "proto/byte_buffer_frame.h"
#include "proto/shard_plan.h"
#include "server/base/atomic_file.h"
#include "server/base/field_error.h"
#include "server/base/log.h"
#include "server/base/process_memory.h"
#include "server/base/utf8.h"
#include "server/base/version.h"
#include "server/config/command_line.h"
#include "server/config/config_text.h"
#include "server/config/options.h"
#include "server/rpc/transport_settings.h"
#include "server/server.h"

namespace agg {

// A reason is never empty, so that it also says whether there is one.

void StopRequest::Ask(const std::string& reason) {
  MutexLock lock(&mutex_);
  if (reason_.empty()) reason_ = reason;
  asked_.NotifyAll();
}

std::string StopRequest::Wait() {
  MutexLock lock(&mutex_);
  while (reason_.empty()) asked_.Wait(&mutex_);
  return reason_;
}

std::string StopRequest::reason() const {
  MutexLock lock(&mutex_);
  return reason_;
}

namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;
constexpr int kSuperseded = 3;
constexpr char kDrainRequest[] = "drain request";

// For whoever reads stderr, and nobody has to: a process that ends does not
// wait longer for a reader.
constexpr absl::Duration kFlushTime = absl::Seconds(2);

// Writes each line of the message, in a text with the program's name: a person
// has started it, or a program that reads JSON.
int Fail(int code, absl::string_view message) {
  const bool json = GetLogFormat() == LogFormat::kJson;
  for (absl::string_view line : absl::StrSplit(message, '\n')) {
    if (json) {
      LogError(line);
    } else {
      WriteToStderr(absl::StrCat("agg_server: ", Shown(line), "\n"));
    }
  }
  FlushLog(kFlushTime);
  return code;
}

[[noreturn]] void ExitNow(int code) {
  FlushLog(kFlushTime);
  _exit(code);
}

// An exception that nobody expects: no memory or no thread to be had. The lines
// before it come out, and it is no crash.
[[noreturn]] void OnTerminate() {
  std::string what = "an exception";
  try {
    const std::exception_ptr current = std::current_exception();
    if (current != nullptr) std::rethrow_exception(current);
  } catch (const std::bad_alloc&) {
    what =
        "no memory is to be had (see ulimit -v and the limits of the "
        "container)";
  } catch (const std::system_error& error) {
    what = absl::StrCat("no thread is to be had: ", error.what(),
                        " (see ulimit -v, ulimit -u and the limits of the "
                        "container)");
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
  }
  ExitNow(Fail(kFailure, absl::StrCat("cannot go on: ", what)));
}

// What is queued comes out, and then the signal does what it does.
void OnCrash(int number) {
  FlushLogAtCrash();
  signal(number, SIG_DFL);
  raise(number);
}

// gRPC ends the process where it cannot open the few files that it needs.
absl::Status CheckMaxFiles() {
  constexpr rlim_t kMinFiles = 64;
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_max >= kMinFiles) {
    return absl::OkStatus();
  }
  return FieldError(
      "the number of files that this process may open "
      "(ulimit -Hn)",
      absl::StrCat(files.rlim_max), absl::StrCat("at least ", kMinFiles));
}

// Limits of the process are errors of calls (SIGXFSZ: of files), and so is a
// peer or a reader that has gone (SIGPIPE).
void PrepareForSignals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  std::set_terminate(&OnTerminate);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    struct sigaction action;
    // A sanitizer has its own.
    if (sigaction(number, nullptr, &action) == 0 &&
        action.sa_handler == SIG_DFL) {
      signal(number, &OnCrash);
    }
  }
}

// A terminal that closes sends SIGHUP, whose default would end the process in
// the middle of a round: it drains, like the others. Who starts the server with
// nohup wants it to live on, so an ignored SIGHUP stays ignored. (A blocked
// signal would reach sigwait even if it is ignored.)
bool HangupIsIgnored() {
  struct sigaction action;
  return sigaction(SIGHUP, nullptr, &action) == 0 &&
         action.sa_handler == SIG_IGN;
}

sigset_t StopSignals(bool with_hangup) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  if (with_hangup) sigaddset(&set, SIGHUP);
  return set;
}

int WaitForSignal(const sigset_t& set) {
  int number = 0;
  while (sigwait(&set, &number) != 0) {
  }
  return number;
}

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

void LogStart(const v1::JobConfig& config, const ServerOptions& options) {
  LogInfo("agg_server ", kVersion, ", job ", config.job(), ", fingerprint ",
          options.fingerprint);
  LogInfo("config: ", absl::StrReplaceAll(PrintJobConfig(config),
                                          {{"\n", " "}, {"  ", ""}}));
  LogInfo("limits: frame payload ", kMaxFramePayloadBytes, " bytes, message ",
          kMaxMessageBytes, " bytes, slice ", kMaxSliceElements,
          " elements, max_workers ", options.coordinator.max_workers);
}

// The first signal asks for the end; the second one is the end (but not SIGHUP:
// a closing terminal and its shell both send it).
void WatchSignals(const sigset_t& set, std::shared_ptr<StopRequest> stop) {
  std::thread([set, stop = std::move(stop)] {
    const int number = WaitForSignal(set);
    stop->Ask(absl::StrCat("signal ", number, " (", strsignal(number), ")"));
    WaitForSignal(StopSignals(/*with_hangup=*/false));
    LogWarning("second signal: exiting at once");
    ExitNow(kFailure);
  }).detach();
}

// Who started this process is gone when the pipe that it holds is closed,
// whatever ended it. What is read until then is dropped.
void WatchStdin(std::shared_ptr<StopRequest> stop) {
  std::thread([stop = std::move(stop)] {
    char dropped[256];
    ssize_t count = 0;
    do {
      count = read(STDIN_FILENO, dropped, sizeof(dropped));
    } while (count > 0 || (count < 0 && errno == EINTR));
    stop->Ask("standard input has ended");
  }).detach();
}

void WatchForTheEnd(const sigset_t& signals, const CommandLine& line,
                    const std::shared_ptr<StopRequest>& stop) {
  WatchSignals(signals, stop);
  if (line.exit_with_stdin) WatchStdin(stop);
}

// Drains the server within `drain`, for that reason, and lets monitoring see it
// unless the reason is a fault. A drain that takes 5 s longer than it may ends
// the process. `lost`: why the shard's backend is of no more use, for which the
// drain then has most likely waited.
void Stop(Server* server, const std::string& reason, bool is_fault,
          absl::Duration drain, const std::shared_ptr<StopRequest>& lost) {
  const absl::Time deadline = absl::Now() + drain;
  if (!is_fault) server->BeginStop();
  LogInfo(reason, ": draining for up to ", absl::FormatDuration(drain));
  if (reason != kDrainRequest) server->NoteStop(reason);
  std::thread([drain, lost] {
    absl::SleepFor(drain + absl::Seconds(5));
    const std::string why = lost->reason();
    LogError("the drain has taken ",
             absl::FormatDuration(drain + absl::Seconds(5)),
             why.empty() ? "" : absl::StrCat(" (", why, ")"), ": exiting");
    ExitNow(kFailure);
  }).detach();
  server->Drain(deadline);
  LogInfo("drained");
  if (!is_fault) server->AwaitLastScrapes(deadline - absl::Now());
}

// Readers of `path` find the complete file or none. PERMISSION_DENIED if it may
// not be written.
absl::Status WritePort(absl::string_view flag, const std::string& path,
                       int port) {
  if (path.empty()) return absl::OkStatus();
  const absl::Status status = WriteFile(path, absl::StrCat(port, "\n"));
  const absl::Status error = OutputError(flag, path, status);
  if (absl::IsPermissionDenied(status)) {
    return absl::PermissionDeniedError(error.message());
  }
  return status.ok() ? status : error;
}

absl::Status WritePorts(const CommandLine& line, const Server& server) {
  absl::Status status = WritePort("--port_file", line.port_file, server.port());
  status.Update(WritePort("--metrics_port_file", line.metrics_port_file,
                          server.metrics_port()));
  return status;
}

StartOptions MakeStartOptions(const CommandLine& line, int ordinal,
                              const BackendMaker& make_backend,
                              const std::shared_ptr<StopRequest>& stop) {
  StartOptions start;
  start.make_backend = make_backend;
  start.ordinal = ordinal;
  start.bind = line.bind;
  start.port = line.port;
  start.metrics_port = line.metrics_port;
  start.admin = line.admin;
  start.on_drain_request = [stop] { stop->Ask(kDrainRequest); };
  return start;
}

// A file that is not for this process stays so: who starts the server again and
// again would do so for ever.
int FailToStart(const absl::Status& status) {
  const bool for_good = absl::IsPermissionDenied(status);
  return Fail(for_good ? kUsage : kFailure, status.message());
}

int Serve(const CommandLine& line, const v1::JobConfig& config,
          const ServerOptions& options, const BackendMaker& make_backend) {
  const absl::StatusOr<int> ordinal = ShardOrdinal(
      line.shard, HostName(), static_cast<int>(options.shards.size()));
  if (!ordinal.ok()) return Fail(kUsage, ordinal.status().message());
  SetLogLevel(line.log_level);
  SetLogName(absl::StrCat("shard", *ordinal));
  SetLogJob(options.coordinator.job, *ordinal);
  // Blocked in every thread that starts from here on, so that the signals wait
  // for WaitForSignal.
  const sigset_t signals = StopSignals(!HangupIsIgnored());
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  LogStart(config, options);
  // Shared with threads that may outlive this function.
  auto stop = std::make_shared<StopRequest>();
  auto lost = std::make_shared<StopRequest>();
  std::atomic<bool> superseded{false};
  StartOptions start = MakeStartOptions(line, *ordinal, make_backend, stop);
  start.on_device_lost = [lost, stop](const absl::Status& status) {
    lost->Ask(std::string(status.message()));
    stop->Ask(std::string(status.message()));
  };
  start.on_superseded = [&](const absl::Status& status) {
    superseded = true;
    stop->Ask(std::string(status.message()));
  };
  absl::StatusOr<std::unique_ptr<Server>> server =
      Server::Start(options, start);
  if (!server.ok()) return FailToStart(server.status());
  const absl::Status written = WritePorts(line, **server);
  if (!written.ok()) return FailToStart(written);
  WatchForTheEnd(signals, line, stop);
  const std::string reason = stop->Wait();
  const bool is_fault = superseded || !lost->reason().empty();
  Stop(server->get(), reason, is_fault, line.drain, lost);
  server->reset();
  if (superseded) {
    return Fail(kSuperseded,
                "superseded: another process coordinates the job now");
  }
  if (lost->reason().empty()) return 0;
  return Fail(kFailure, lost->reason() + ": a new process is needed");
}

// Each line of the error with the name of the file in front.
absl::Status InFile(absl::string_view source, const absl::Status& error) {
  return absl::Status(
      error.code(),
      error.ok()
          ? ""
          : absl::StrCat(source, ": ",
                         absl::StrReplaceAll(
                             error.message(),
                             {{"\n", absl::StrCat("\n", source, ": ")}})));
}

absl::Status TakeOptions(const v1::JobConfig& config, ServerOptions* options) {
  absl::StatusOr<ServerOptions> made = MakeServerOptions(config);
  if (made.ok()) *options = *std::move(made);
  return made.status();
}

int Main(const std::vector<std::string>& arguments,
         const BackendMaker& make_backend) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(arguments);
  if (!line.ok()) return Fail(kUsage, line.status().message());
  SetLogFormat(line->log_format);
  if (!line->text.empty()) {
    std::cout << line->text;
    return 0;
  }
  if (line->config.empty()) {
    return Fail(kUsage, "--config is missing; see --help");
  }
  const absl::StatusOr<std::string> text = ReadConfigFile(line->config);
  if (!text.ok()) return Fail(kUsage, text.status().message());
  const std::string source = line->config == "-" ? "stdin" : line->config;
  FieldErrors errors;
  v1::JobConfig config;
  ServerOptions options;
  // What the parser stopped at may hide the rest: then only its errors count.
  if (errors.Take(ParseJobConfig(*text, source, &errors), &config)) {
    config = WithDefaults(config);
    errors.Add(InFile(source, TakeOptions(config, &options)));
  }
  if (!errors.empty()) return Fail(kUsage, errors.status().message());
  if (line->print_config) std::cout << PrintJobConfig(config);
  if (!std::cout.flush()) return Fail(kFailure, "stdout cannot be written");
  if (line->validate) {
    WriteToStderr("agg_server: the configuration is valid\n");
  }
  if (line->print_config || line->validate) return 0;
  const absl::Status files = CheckMaxFiles();
  if (!files.ok()) return Fail(kFailure, files.message());
  return Serve(*line, config, options, make_backend);
}

}  // namespace

int ServerMain(int argc, char** argv, const BackendMaker& make_backend) {
  TuneMalloc();  // before any thread and any large allocation
  PrepareForSignals();
  // First of all: nobody has to read what comes.
  StartLogWriter();
  LimitLogLines();
  LogGrpcErrors();
  const int code =
      Main(std::vector<std::string>(argv + 1, argv + argc), make_backend);
  FlushLog(kFlushTime);
  return code;
}

}  // namespace agg
