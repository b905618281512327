// Apart from options.cc since both fields are read with the number of shards
// and the job's name beside them.
#include "server/config/survival_config.h"

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"
#include "server/base/status_macros.h"

namespace agg {
namespace {

constexpr absl::string_view kNeedsPath = "only with checkpoint.path";

// What is set of `checkpoint`, though there is no path to write to.
absl::Status CheckNothingSet(const v1::CheckpointConfig& config) {
  FieldErrors errors;
  if (config.has_every_seconds()) {
    errors.Add(CheckField(false, "checkpoint.every_seconds",
                          config.every_seconds(), kNeedsPath));
  }
  errors.Add(CheckField(config.every_rounds() == 0, "checkpoint.every_rounds",
                        static_cast<double>(config.every_rounds()),
                        kNeedsPath));
  errors.Add(CheckField(config.keep() == 0, "checkpoint.keep", config.keep(),
                        kNeedsPath));
  if (!config.restore().empty()) {
    errors.Add(
        FieldError("checkpoint.restore", Quoted(config.restore()), kNeedsPath));
  }
  if (!config.restore_job().empty()) {
    errors.Add(FieldError("checkpoint.restore_job",
                          Quoted(config.restore_job()), kNeedsPath));
  }
  return errors.status();
}

// The names that a job may have and a folder may not.
bool IsFolderName(const std::string& job) {
  return job != "." && job != ".." && job.find('/') == std::string::npos;
}

absl::Status CheckRestoreJob(const v1::JobConfig& config) {
  const std::string& other = config.checkpoint().restore_job();
  if (other.empty()) return absl::OkStatus();
  if (!IsFolderName(other) || other == config.job()) {
    return FieldError("checkpoint.restore_job", Quoted(other),
                      "the name of another job, a folder below path");
  }
  if (config.checkpoint().restore() == "none") {
    return FieldError("checkpoint.restore_job", Quoted(other),
                      "only with restore \"latest\"");
  }
  return absl::OkStatus();
}

}  // namespace

void CompleteSurvival(v1::JobConfig* config) {
  if (config->replication().empty()) {
    config->set_replication(config->shards_size() < 2 ? "none" : "buddy");
  }
  if (config->checkpoint().path().empty()) return;
  v1::CheckpointConfig* checkpoint = config->mutable_checkpoint();
  if (!checkpoint->has_every_seconds()) {
    checkpoint->set_every_seconds(checkpoint->every_rounds() == 0 ? 600.0
                                                                  : 0.0);
  }
  if (checkpoint->keep() == 0) checkpoint->set_keep(3);
  if (checkpoint->restore().empty()) checkpoint->set_restore("latest");
}

absl::StatusOr<bool> MakeReplicated(const v1::JobConfig& config) {
  AGG_DCHECK(!config.replication().empty());
  if (config.replication() == "none") return false;
  if (config.replication() != "buddy") {
    return FieldError("replication", Quoted(config.replication()),
                      "\"none\", \"buddy\"");
  }
  if (config.shards_size() < 2) {
    return FieldError("replication", "\"buddy\", and number of shards is 1",
                      "\"none\" with 1 shard, \"buddy\" with 2 or more");
  }
  return true;
}

absl::StatusOr<CheckpointOptions> MakeCheckpointOptions(
    const v1::JobConfig& config) {
  AGG_DCHECK(!config.replication().empty());
  const v1::CheckpointConfig& checkpoint = config.checkpoint();
  CheckpointOptions options;
  if (checkpoint.path().empty()) {
    AGG_RETURN_IF_ERROR(CheckNothingSet(checkpoint));
    return options;
  }
  FieldErrors errors;
  if (!IsFolderName(config.job())) {
    errors.Add(FieldError("job", Quoted(config.job()),
                          "with checkpoints: a name of a folder"));
  }
  errors.Add(CheckField(IsFiniteAtLeast(checkpoint.every_seconds(), 0.0),
                        "checkpoint.every_seconds", checkpoint.every_seconds(),
                        "finite, >= 0 (0: not by time)"));
  errors.Add(CheckField(checkpoint.keep() >= 1, "checkpoint.keep",
                        checkpoint.keep(), ">= 1"));
  if (checkpoint.restore() != "latest" && checkpoint.restore() != "none") {
    errors.Add(FieldError("checkpoint.restore", Quoted(checkpoint.restore()),
                          "\"latest\", \"none\""));
  }
  errors.Add(CheckRestoreJob(config));
  if (!errors.empty()) return errors.status();
  options.enabled = true;
  options.every = absl::Seconds(checkpoint.every_seconds());
  options.every_rounds = checkpoint.every_rounds();
  options.keep = checkpoint.keep();
  options.restore = checkpoint.restore() == "latest";
  options.restore_job = checkpoint.restore_job();
  return options;
}

}  // namespace agg
