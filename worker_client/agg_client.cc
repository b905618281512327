// Checks the caller's options and the server's answer to Join; all calls go
// on to ClientCore.
#include "worker_client/agg_client.h"

#include <unistd.h>

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "proto/agg.pb.h"
#include "proto/manifest_message.h"
#include "server/base/address.h"
#include "server/base/field_error.h"
#include "server/base/process_memory.h"
#include "server/base/status_macros.h"
#include "server/tls/tls_files.h"
#include "worker_client/channel.h"
#include "worker_client/client_core.h"
#include "worker_client/client_operations.h"
#include "worker_client/coordinator_session.h"
#include "worker_client/copy_threads.h"
#include "worker_client/membership.h"
#include "worker_client/npz/npz.h"
#include "worker_client/operation_runner.h"
#include "worker_client/pull_arrivals.h"
#include "worker_client/pull_stream.h"
#include "worker_client/shard_router.h"
#include "worker_client/version_view.h"

namespace agg {
namespace {

absl::Status CheckOptions(const ClientOptions& options) {
  if (options.channels_per_shard < 1 || options.channels_per_shard > 2) {
    return FieldError("channels_per_shard",
                      absl::StrCat(options.channels_per_shard), "1 and 2");
  }
  if (options.copy_threads < 1 ||
      options.copy_threads > CopyThreads::kMaxThreads) {
    return FieldError("copy_threads", absl::StrCat(options.copy_threads),
                      absl::StrCat("1 to ", CopyThreads::kMaxThreads));
  }
  AGG_RETURN_IF_ERROR(CheckTlsOptions(options.tls, absl::Now()));
  const absl::Status address = CheckAddress("coordinator", options.coordinator);
  if (!address.ok() || options.observer) return address;
  if (options.rank < 0) {
    return FieldError("rank", absl::StrCat(options.rank), "0 or more");
  }
  return ValidateManifest(options.manifest);
}

absl::Status CheckDescription(const v1::JoinReply& reply) {
  for (v1::DType dtype : {reply.push_dtype(), reply.pull_dtype()}) {
    const bool rows_alone = dtype == v1::I8 && dtype != reply.pull_dtype();
    if (dtype != v1::F32 && dtype != v1::BF16 && dtype != v1::F16 &&
        !rows_alone) {
      return absl::InternalError(
          absl::StrCat("the job uses dtype ", dtype, ", which this client does",
                       " not know; use a client of the server's version"));
    }
  }
  return absl::OkStatus();
}

// The job says only now where its other shards are; Unix sockets may have it.
absl::Status CheckTokens(const ClientOptions& options, const JobView& view) {
  for (size_t i = 0; i < view.names().size(); ++i) {
    if (view.local(i)) continue;
    AGG_RETURN_IF_ERROR(CheckToken(options.token_file, view.names()[i].address,
                                   options.tls.any()));
  }
  return absl::OkStatus();
}

absl::StatusOr<ShardRouter> RouterOf(const ClientOptions& options,
                                     const JobView& view) {
  const v1::JoinReply& description = view.reply();
  AGG_RETURN_IF_ERROR(CheckDescription(description));
  AGG_RETURN_IF_ERROR(CheckTokens(options, view));
  return ShardRouter::Create(FromProto(description.manifest()),
                             description.shards_size());
}

}  // namespace

AggClient::AggClient(std::unique_ptr<ClientCore> core)
    : process_(getpid()),
      core_(std::move(core)),
      operations_(std::make_unique<ClientOperations>(core_.get())) {}

AggClient::~AggClient() {
  if (forked()) {
    // Their threads are not there to be joined.
    operations_.release();
    core_.release();
    return;
  }
  Leave().IgnoreError();
}

bool AggClient::forked() const { return getpid() != process_; }

absl::StatusOr<std::unique_ptr<AggClient>> AggClient::Connect(
    ClientOptions options) {
  options.tls = WithTlsEnvironment(options.tls);
  options.token_file = WithTokenEnvironment(options.token_file);
  AGG_RETURN_IF_ERROR(CheckOptions(options));
  AGG_RETURN_IF_ERROR(CheckNotForked());
  NoteConnecting();
  if (options.tune_malloc) TuneMalloc();
  AGG_ASSIGN_OR_RETURN(std::unique_ptr<Membership> membership,
                       Membership::Open(options));
  const Membership::View view = membership->view();
  absl::StatusOr<ShardRouter> router = RouterOf(options, *view);
  if (!router.ok()) {
    if (!options.observer) {
      CoordinatorSession(options, membership.get()).Leave(*view).IgnoreError();
    }
    return router.status();
  }
  return absl::WrapUnique(new AggClient(std::make_unique<ClientCore>(
      options, std::move(membership), *std::move(router))));
}

absl::StatusOr<RoundOutcome> AggClient::Seed(
    absl::Span<const TensorView> parameters) {
  operations_->DropOpen();
  return core_->Seed(parameters);
}

absl::StatusOr<RoundOutcome> AggClient::SeedFile(const std::string& npz_path) {
  AGG_ASSIGN_OR_RETURN(std::vector<NpzTensor> tensors, ReadNpz(npz_path));
  for (const TensorSpec& spec : manifest().tensors) {
    for (const NpzTensor& tensor : tensors) {
      if (tensor.name != spec.name || tensor.shape == spec.shape) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          npz_path, ": tensor \"", spec.name, "\" has the shape [",
          absl::StrJoin(tensor.shape, ","), "]; allowed: the manifest's, [",
          absl::StrJoin(spec.shape, ","), "]"));
    }
  }
  std::vector<TensorView> views;
  for (const NpzTensor& tensor : tensors) {
    views.emplace_back(tensor.name, tensor.values);
  }
  return Seed(views);
}

absl::Status AggClient::SeedOrPull(
    absl::Span<const MutableTensorView> parameters) {
  operations_->DropOpen();
  return core_->SeedOrPull(parameters);
}

absl::Status AggClient::Push(absl::Span<const TensorView> gradient) {
  return Operation(operations_->Push(gradient)).Wait();
}

absl::StatusOr<RoundOutcome> AggClient::Commit(const PushInfo& info) {
  return Handle(operations_->Commit(info)).Outcome();
}

absl::Status AggClient::Pull(uint64_t version,
                             absl::Span<const MutableTensorView> parameters,
                             Precision precision) {
  return Operation(operations_->Pull(version, parameters, {precision, {}}))
      .Wait();
}

absl::StatusOr<std::vector<MutableTensorView>> AggClient::RowTensors() {
  return core_->RowTensors();
}

absl::StatusOr<std::vector<RowView>> AggClient::RowViews() {
  return core_->RowViews();
}

absl::StatusOr<std::unique_ptr<VersionView>> AggClient::PullView(
    uint64_t version) {
  return core_->PullView(version);
}

absl::StatusOr<RoundOutcome> AggClient::PushPull(
    absl::Span<const TensorView> gradient, const PushInfo& info,
    absl::Span<const MutableTensorView> parameters) {
  return MakeRound(gradient, info, parameters).Outcome();
}

RoundOperation AggClient::MakeRound(
    absl::Span<const TensorView> gradient, const PushInfo& info,
    absl::Span<const MutableTensorView> parameters) {
  return Handle(
      operations_->Round(gradient, /*whole=*/true, info, parameters, {}));
}

RoundOperation AggClient::ResumeRound(const RoundOperation& cancelled) {
  return Handle(operations_->Resume(cancelled.state_));
}

Operation AggClient::StartPush(absl::Span<const TensorView> gradient) {
  return Operation(operations_->PushSome(gradient));
}

RoundOperation AggClient::StartCommit(const PushInfo& info) {
  return Handle(operations_->Start(operations_->Commit(info)));
}

PullOperation AggClient::StartPull(
    uint64_t version, absl::Span<const MutableTensorView> parameters,
    const PullOptions& options) {
  return Handle(
      operations_->Start(operations_->Pull(version, parameters, options)));
}

RoundOperation AggClient::StartRound(
    absl::Span<const TensorView> gradient, const PushInfo& info,
    absl::Span<const MutableTensorView> parameters,
    const PullOptions& options) {
  return Handle(operations_->Start(operations_->Round(
      gradient, /*whole=*/false, info, parameters, options)));
}

RoundOperation AggClient::Handle(std::shared_ptr<OperationState> state) const {
  return RoundOperation(std::move(state), core_->shared_router());
}

absl::StatusOr<uint64_t> AggClient::PullLatest(
    absl::Span<const MutableTensorView> parameters, Precision precision) {
  AGG_ASSIGN_OR_RETURN(PullInto into, core_->IntoOf(parameters));
  PullArrivals arrivals(&core_->router());
  into.arrivals = &arrivals;
  into.precision = precision;
  return core_->PullLatest(into);
}

absl::StatusOr<uint64_t> AggClient::LatestVersion() {
  return core_->LatestVersion();
}

absl::StatusOr<RoundOutcome> AggClient::Wait(uint64_t version) {
  if (version == 0) {
    return absl::InvalidArgumentError(
        "version 0 is the seed, not a round's; Pull(0) waits for it");
  }
  return core_->Wait(version);
}

absl::StatusOr<Reduction> AggClient::Reduce(const std::string& what,
                                            absl::Span<const double> values) {
  const auto made = std::make_shared<Reduction>();
  AGG_RETURN_IF_ERROR(
      Operation(operations_->Reduce(what, {values.begin(), values.end()}, made))
          .Wait());
  return *made;
}

Operation AggClient::StartReduce(const std::string& what,
                                 absl::Span<const double> values,
                                 std::shared_ptr<Reduction> made) {
  return Operation(operations_->Start(operations_->Reduce(
      what, {values.begin(), values.end()}, std::move(made))));
}

absl::Status AggClient::Leave() {
  if (forked()) {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", getpid(), " is a fork of ", process_,
                     ", which has the session; Connect in the child"));
  }
  return core_->Leave();
}

uint64_t AggClient::version() const { return core_->version(); }
uint64_t AggClient::session() const { return core_->session(); }
bool AggClient::seed_role() const { return core_->seed_role(); }
bool AggClient::finished() const { return core_->finished(); }
const Manifest& AggClient::manifest() const {
  return core_->router().manifest();
}
JobDescription AggClient::job() const { return core_->JobNow(); }

}  // namespace agg
