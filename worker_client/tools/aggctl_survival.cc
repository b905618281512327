// Apart from the tables: these lines are there only where something is kept.
#include "worker_client/tools/aggctl_survival.h"

#include "absl/strings/str_cat.h"
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
    absl::StrAppend(
        &text, "; the last try failed: ", Printable(checkpoint.last_error()));
  }
  return text + "\n";
}

}  // namespace

std::string SurvivalText(const v1::StatusReply& status, absl::Time now) {
  std::string text;
  if (!status.recovering().empty()) {
    absl::StrAppend(&text, "recovery  ", Printable(status.recovering()), "\n");
  }
  if (status.replicated()) {
    absl::StrAppend(&text, "copies    two of each part\n");
  }
  if (status.has_checkpoint()) {
    absl::StrAppend(&text, Saved(status.checkpoint(), now));
  }
  return text;
}

std::string CheckpointText(const v1::TakeCheckpointReply& reply) {
  return absl::StrCat("version ", reply.version(), " is saved: ", reply.bytes(),
                      " bytes, in the folder ", reply.made(), "-",
                      reply.version(), "\n");
}

}  // namespace agg
