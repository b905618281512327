// Apart from the tables: these lines are there only where something is kept.
#include "worker_client/tools/aggctl_survival.h"

#include "absl/strings/str_cat.h"
#include "server/base/utf8.h"
#include "worker_client/tools/text_table.h"
#include "worker_client/tools/time_text.h"

namespace agg {
namespace {

// The newest checkpoint, and what became of others.
std::string Saved(const v1::CheckpointStatus& checkpoint, absl::Time now) {
  std::string text = "saved     ";
  if (checkpoint.made() == 0) {
    absl::StrAppend(&text, "nothing yet");
  } else {
    absl::StrAppend(&text, "version ", checkpoint.version(), ", ",
                    Seconds(checkpoint.age_seconds()), " ago, at ",
                    Since(checkpoint.age_seconds(), now), " UTC");
  }
  if (checkpoint.writing()) absl::StrAppend(&text, "; one is being written");
  if (checkpoint.restored_made() != 0) {
    absl::StrAppend(&text, "; the job went on from version ",
                    checkpoint.restored_version());
  }
  if (checkpoint.num_failed() > 0) {
    absl::StrAppend(&text, "; ", checkpoint.num_failed(), " failed");
  }
  if (!checkpoint.last_error().empty()) {
    absl::StrAppend(&text,
                    "; the last try failed: ", Shown(checkpoint.last_error()));
  }
  return text + "\n";
}

}  // namespace

std::string SurvivalText(const v1::StatusReply& status, absl::Time now) {
  std::string text;
  if (!status.recovering().empty()) {
    absl::StrAppend(&text, "recovery  ", Shown(status.recovering()), "\n");
  }
  if (status.replicated()) {
    absl::StrAppend(&text, "copies    two of each part\n");
  }
  if (status.has_checkpoint()) {
    absl::StrAppend(&text, Saved(status.checkpoint(), now));
    // While something is waited for it says what is done next.
    if (!status.checkpoint().restore().empty() && status.recovering().empty()) {
      absl::StrAppend(&text, "restore   ", Shown(status.checkpoint().restore()),
                      "\n");
    }
  }
  return text;
}

std::string RestoreText(const v1::RestoreReply& reply) {
  std::string text;
  if (!reply.text().empty()) {
    absl::StrAppend(&text, Shown(reply.text()), "\n");
  }
  if (reply.found().empty()) {
    absl::StrAppend(&text, "no shard sees a sealed checkpoint\n");
  }
  for (const v1::RestoreReply::Found& found : reply.found()) {
    absl::StrAppend(
        &text, "version ", found.version(), " (", found.made(), "-",
        found.version(),
        "): ", found.missing().empty() ? "complete" : Shown(found.missing()),
        "\n");
  }
  return text;
}

std::string ResumeText(const v1::ResumeReply& reply) {
  return absl::StrCat("the job goes on from version ", reply.version(),
                      "; it had finished: ", Shown(reply.ended()), "\n");
}

std::string CheckpointText(const v1::TakeCheckpointReply& reply) {
  return absl::StrCat("version ", reply.version(), " is saved: ", reply.bytes(),
                      " bytes, in the folder ", reply.made(), "-",
                      reply.version(), "\n");
}

}  // namespace agg
