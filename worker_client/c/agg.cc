// Each call: the fork's guard, structs to values, the client's call, a code.
#include "worker_client/c/agg.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/device_memory/cuda_driver.h"
#include "proto/crc32c.h"
#include "server/base/field_error.h"
#include "server/base/mutex.h"
#include "server/base/status_macros.h"
#include "server/base/version.h"
#include "worker_client/agg_client.h"
#include "worker_client/c/c_calls.h"
#include "worker_client/c/c_structs.h"
#include "worker_client/c/event_queue.h"
#include "worker_client/channel.h"
#include "worker_client/client_event.h"
#include "worker_client/client_types.h"
#include "worker_client/tensor_view.h"

namespace {

agg::Precision PrecisionOf(int32_t full) {
  return full != 0 ? agg::Precision::kFull : agg::Precision::kJob;
}

}  // namespace

int32_t agg_abi_version(void) { return AGG_ABI_VERSION; }
int32_t agg_abi_minor(void) { return AGG_ABI_MINOR; }
const char* agg_version(void) { return agg::kVersion; }
int32_t agg_has_cuda(void) {
  return agg::CudaDriver::FindLoaded() != nullptr ? 1 : 0;
}
uint32_t agg_crc32c(const void* const* pieces, const size_t* sizes,
                    size_t count) {
  uint32_t crc = agg::kCrc32cInit;
  for (size_t i = 0; i < count; ++i) {
    crc = agg::ExtendCrc32c(
        crc, absl::string_view(static_cast<const char*>(pieces[i]), sizes[i]));
  }
  crc = agg::FinishCrc32c(crc);
  return crc == 0 ? 1 : crc;
}
const char* agg_error(void) { return agg::ThisThreads().error.c_str(); }

void agg_options_init(agg_options* options, size_t size) {
  if (options == nullptr || size < sizeof(size_t)) return;
  std::memset(options, 0, size);
  const agg_options defaults = agg::DefaultOptions();
  std::memcpy(options, &defaults, std::min(size, sizeof(defaults)));
  options->size = size;
}

agg_client* agg_new(const agg_options* options) {
  std::unique_ptr<agg_client> client;
  const int32_t code = agg::NoThrow([&]() -> absl::Status {
    AGG_ASSIGN_OR_RETURN(agg::ClientOptions read, agg::OptionsOf(options));
    client = std::make_unique<agg_client>();
    client->options = std::move(read);
    agg::EventQueue* const events = &client->events;
    client->options.on_event = [events](const agg::ClientEvent& event) {
      events->Add(event);
    };
    return absl::OkStatus();
  });
  return code == AGG_OK ? client.release() : nullptr;
}

int32_t agg_connect(agg_client* client) {
  const absl::Status forked = agg::CheckNotForked();
  if (!forked.ok()) return agg::Fail(AGG_FORKED, forked.message());
  return agg::OfThisProcess(client, "client", [&]() -> absl::Status {
    agg::MutexLock lock(&client->connecting);
    if (client->owned != nullptr) {
      return absl::FailedPreconditionError("this client is connected already");
    }
    AGG_ASSIGN_OR_RETURN(auto connected,
                         agg::AggClient::Connect(client->options));
    client->owned = std::move(connected);
    client->connected = client->owned.get();
    return absl::OkStatus();
  });
}

int32_t agg_leave(agg_client* client) {
  return agg::OfThisProcess(client, "client", [&]() -> absl::Status {
    agg::AggClient* const connected = client->connected;
    return connected == nullptr ? absl::OkStatus() : connected->Leave();
  });
}

void agg_free(agg_client* client) {
  if (client == nullptr || getpid() != client->process) return;
  agg::NoThrow([&] {
    delete client;
    return absl::OkStatus();
  });
}

int32_t agg_seed(agg_client* client, const agg_view* parameters, size_t count,
                 agg_outcome* outcome) {
  return agg::Connected(client, [&](agg::AggClient* connected) -> absl::Status {
    AGG_ASSIGN_OR_RETURN(const auto views, agg::ViewsOf(parameters, count));
    return agg::Answered(connected->Seed(views), outcome);
  });
}

int32_t agg_seed_file(agg_client* client, const char* npz_path,
                      agg_outcome* outcome) {
  return agg::Connected(client, [&](agg::AggClient* connected) {
    return npz_path == nullptr
               ? absl::InvalidArgumentError("npz_path is NULL")
               : agg::Answered(connected->SeedFile(npz_path), outcome);
  });
}

int32_t agg_seed_or_pull(agg_client* client, const agg_target* parameters,
                         size_t count) {
  return agg::Connected(client, [&](agg::AggClient* connected) -> absl::Status {
    AGG_ASSIGN_OR_RETURN(const auto targets, agg::TargetsOf(parameters, count));
    return connected->SeedOrPull(targets);
  });
}

int32_t agg_push(agg_client* client, const agg_view* gradient, size_t count) {
  return agg::Connected(client, [&](agg::AggClient* connected) -> absl::Status {
    AGG_ASSIGN_OR_RETURN(const auto views,
                         client->rows.ViewsOf(nullptr, gradient, count));
    return connected->Push(views);
  });
}

int32_t agg_row_pieces(agg_client* client, agg_piece* pieces, size_t capacity,
                       size_t* count) {
  return agg::Connected(client, [&](agg::AggClient* connected) -> absl::Status {
    if (count == nullptr || (pieces == nullptr && capacity > 0)) {
      return absl::InvalidArgumentError(count == nullptr ? "count is NULL"
                                                         : "pieces is NULL");
    }
    AGG_ASSIGN_OR_RETURN(std::vector<agg::RowView> row, connected->RowViews());
    *count = agg::FillPieces(row, pieces, capacity);
    client->rows.Keep(std::move(row));
    return absl::OkStatus();
  });
}

int32_t agg_commit(agg_client* client, const agg_push_info* info,
                   agg_outcome* outcome) {
  return agg::Connected(client, [&](agg::AggClient* connected) -> absl::Status {
    AGG_ASSIGN_OR_RETURN(const auto read, agg::PushInfoOf(info));
    return agg::Answered(connected->Commit(read), outcome);
  });
}

int32_t agg_pull(agg_client* client, uint64_t version,
                 const agg_target* parameters, size_t count,
                 int32_t full_precision) {
  return agg::Connected(client, [&](agg::AggClient* connected) -> absl::Status {
    AGG_ASSIGN_OR_RETURN(const auto targets, agg::TargetsOf(parameters, count));
    return connected->Pull(version, targets, PrecisionOf(full_precision));
  });
}

int32_t agg_pull_latest(agg_client* client, const agg_target* parameters,
                        size_t count, int32_t full_precision,
                        uint64_t* version) {
  return agg::Connected(client, [&](agg::AggClient* connected) -> absl::Status {
    AGG_ASSIGN_OR_RETURN(const auto targets, agg::TargetsOf(parameters, count));
    const absl::StatusOr<uint64_t> latest =
        connected->PullLatest(targets, PrecisionOf(full_precision));
    if (latest.ok() && version != nullptr) *version = *latest;
    return latest.status();
  });
}

int32_t agg_latest_version(agg_client* client, uint64_t* version) {
  return agg::Connected(client, [&](agg::AggClient* connected) {
    const absl::StatusOr<uint64_t> latest = connected->LatestVersion();
    if (latest.ok() && version != nullptr) *version = *latest;
    return latest.status();
  });
}

int32_t agg_push_pull(agg_client* client, const agg_view* gradient,
                      size_t num_gradients, const agg_push_info* info,
                      const agg_target* parameters, size_t num_parameters,
                      agg_outcome* outcome) {
  return agg::Connected(client, [&](agg::AggClient* connected) -> absl::Status {
    AGG_ASSIGN_OR_RETURN(
        const auto views,
        client->rows.ViewsOf(nullptr, gradient, num_gradients));
    AGG_ASSIGN_OR_RETURN(const auto read, agg::PushInfoOf(info));
    AGG_ASSIGN_OR_RETURN(const auto targets,
                         agg::TargetsOf(parameters, num_parameters));
    agg::RunningRounds::Entry running(
        &client->rounds, connected->MakeRound(views, read, targets));
    return agg::Answered(running.round()->Outcome(), outcome);
  });
}

int32_t agg_copy(const agg_target* from, const agg_target* to, size_t count) {
  return agg::NoThrow([&]() -> absl::Status {
    AGG_RETURN_IF_ERROR(agg::TargetsOf(from, count).status());
    AGG_RETURN_IF_ERROR(agg::TargetsOf(to, count).status());
    for (size_t i = 0; i < count; ++i) {
      if (from[i].num_elements == to[i].num_elements) continue;
      return agg::FieldError(absl::StrCat("to[", i, "].num_elements"),
                             absl::StrCat(to[i].num_elements),
                             absl::StrCat(from[i].num_elements));
    }
    for (size_t i = 0; i < count; ++i) {
      std::copy_n(from[i].data, from[i].num_elements, to[i].data);
    }
    return absl::OkStatus();
  });
}

int32_t agg_interrupt(agg_client* client) {
  return agg::OfThisProcess(client, "client", [&] {
    client->rounds.Cancel();
    return absl::OkStatus();
  });
}

int32_t agg_wait(agg_client* client, uint64_t version, agg_outcome* outcome) {
  return agg::Connected(client, [&](agg::AggClient* connected) {
    return agg::Answered(connected->Wait(version), outcome);
  });
}

int32_t agg_get_state(agg_client* client, agg_state* state) {
  return agg::Connected(client, [&](agg::AggClient* connected) {
    agg_state values = {};
    values.version = connected->version();
    values.session = connected->session();
    values.seed_role = connected->seed_role();
    values.finished = connected->finished();
    return agg::Fill(values, state);
  });
}

int32_t agg_get_job(agg_client* client, agg_job* job) {
  return agg::Connected(client, [&](agg::AggClient* connected) {
    const agg::JobDescription now = connected->job();
    agg::MutexLock lock(&client->describing);
    auto& jobs = client->jobs;
    auto found = std::find_if(jobs.begin(), jobs.end(), [&](const auto& known) {
      return known->job.transports == now.transports;
    });
    if (found == jobs.end()) {
      found = jobs.insert(found, std::make_unique<agg::JobStore>(now));
    }
    return agg::Fill(**found, connected->manifest().tensors.size(), job);
  });
}

int32_t agg_get_spec(agg_client* client, size_t index, agg_spec* spec) {
  return agg::Connected(client, [&](agg::AggClient* connected) {
    const auto& tensors = connected->manifest().tensors;
    if (index >= tensors.size()) {
      return absl::OutOfRangeError(absl::StrCat(
          "index is ", index, "; allowed: 0 to ", tensors.size() - 1));
    }
    if (spec != nullptr) *spec = agg::SpecOf(tensors[index]);
    return absl::OkStatus();
  });
}

int32_t agg_next_event(agg_client* client, double timeout, agg_event* event) {
  return agg::OfThisProcess(client, "client", [&]() -> absl::Status {
    std::optional<agg::QueuedEvent> taken =
        client->events.Take(absl::Seconds(std::isnan(timeout) ? 0.0 : timeout));
    if (!taken.has_value()) return absl::NotFoundError("no event came");
    agg::ThisThreads().event = std::move(taken->event.message);
    agg_event values = {};
    values.kind = static_cast<int32_t>(taken->event.kind);
    values.version = taken->event.version;
    values.num_dropped = taken->num_dropped;
    values.message = agg::ThisThreads().event.c_str();
    return agg::Fill(values, event);
  });
}
