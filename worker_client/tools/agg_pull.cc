// agg_pull: gets a job's parameters out, as an .npz file for numpy.load or
// for a later Seed. `aggctl pull` does the same with aggctl's exit codes.
//
//   agg_pull [--coordinator=host:port] --output=params.npz [--version=N]
//   agg_pull --checkpoint=FOLDER --output=params.npz
//
// Exit codes: 0 written; 1 the job did not answer, the checkpoint is damaged,
// or the file cannot be written; 2 a bad flag. Errors are one line on stderr;
// before it, one that says what is waited for, if the job does not answer at
// once.
#include <signal.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/shard_plan.h"
#include "proto/tls_options.h"
#include "server/base/address.h"
#include "server/base/field_error.h"
#include "server/base/file_system.h"
#include "server/base/flags.h"
#include "server/base/status_macros.h"
#include "server/base/utf8.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "worker_client/client_event.h"
#include "worker_client/npz/npz.h"
#include "worker_client/tools/pull_model.h"
#include "worker_client/tools/tls_flags.h"

namespace agg {
namespace {

struct AggPullFlags {
  std::string coordinator = "127.0.0.1:50051";
  TlsOptions tls;
  std::string output;
  absl::optional<uint64_t> version;  // default: the newest
  std::string checkpoint;            // "": ask the job
  std::string token_file;            // "": AGG_TOKEN_FILE
};

Program AggPull(AggPullFlags* flags) {
  Program program;
  program.name = "agg_pull";
  program.summary = "agg_pull: writes a job's parameters to an .npz file.";
  program.flags = {
      {"--output", "FILE", "the .npz file to write",
       TextValue(&flags->output, "the path of the .npz file to write"),
       /*required=*/true},
      {"--coordinator", "HOST:PORT",
       "shard 0; default: $AGG_COORDINATOR, or 127.0.0.1:50051",
       AddressValue(&flags->coordinator)},
      {"--token-file", "PATH",
       "whose first line says who asks; default: $AGG_TOKEN_FILE",
       TextValue(&flags->token_file, "the path of a file of tokens")},
      {"--version", "N", "which published version; default: the newest",
       NumberValue(uint64_t{0}, std::numeric_limits<uint64_t>::max(),
                   "0 or more", &flags->version)},
      {"--checkpoint", "FOLDER",
       "of a checkpoint, PATH/JOB/<made>-<version>, to read instead of a job",
       TextValue(&flags->checkpoint, "the path of a checkpoint's folder")},
  };
  for (Flag& flag : TlsFlags("--tls_", &flags->tls)) {
    program.flags.push_back(std::move(flag));
  }
  return program;
}

absl::Status ReadTensors(CheckpointReader* reader,
                         std::vector<NpzTensor>* tensors) {
  const std::vector<Slice>& slices = reader->plan().slices;
  for (const Slice& slice : slices) {
    const absl::Span<float> values =
        absl::MakeSpan((*tensors)[slice.tensor].values)
            .subspan(static_cast<size_t>(slice.begin),
                     static_cast<size_t>(slice.num_elements));
    AGG_RETURN_IF_ERROR(reader->ReadSlice(slice.index, 0, values));
  }
  return absl::OkStatus();
}

// Reads a checkpoint as complete tensors, when no job is running. `folder`:
// with manifest.json and all parts, under any name (server/checkpoint/README.md
// 1). Compares all checksums. Errors name the file: DATA_LOSS and
// INVALID_ARGUMENT if it is damaged, UNIMPLEMENTED if it is of a later release,
// else FileSystem's.
absl::StatusOr<PulledModel> ReadCheckpointModel(const std::string& folder) {
  const std::unique_ptr<FileSystem> files = MakeSystemFiles();
  AGG_ASSIGN_OR_RETURN(
      const CheckpointManifest manifest,
      ReadCheckpointManifest(files.get(), folder, absl::nullopt));
  AGG_ASSIGN_OR_RETURN(CheckpointReader reader,
                       CheckpointReader::Create(files.get(), folder, manifest));
  // All parts before any memory for their tensors: a file that lacks what its
  // manifest says costs nothing.
  for (int i = 0; i < manifest.num_shards; ++i) {
    AGG_RETURN_IF_ERROR(reader.VerifyPart(i));
  }
  PulledModel model = ZeroModel(manifest.tensors);
  model.version = manifest.id.version;
  AGG_RETURN_IF_ERROR(ReadTensors(&reader, &model.tensors));
  return model;
}

absl::Status PullToFile(const AggPullFlags& flags) {
  AGG_ASSIGN_OR_RETURN(
      const PulledModel model,
      flags.checkpoint.empty()
          ? PullModel(flags.coordinator, flags.tls, flags.version,
                      absl::Seconds(5), PrintEvent, flags.token_file)
          : ReadCheckpointModel(flags.checkpoint));
  AGG_RETURN_IF_ERROR(WriteNpz(flags.output, model.tensors));
  std::printf("%s\n", Shown(Describe(model, flags.output)).c_str());
  return absl::OkStatus();
}

int Main(const std::vector<std::string>& arguments) {
  AggPullFlags flags;
  const char* const environment = std::getenv("AGG_COORDINATOR");
  if (environment != nullptr && *environment != '\0') {
    flags.coordinator = environment;
  }
  absl::StatusOr<ParsedFlags> parsed = ParseFlags(AggPull(&flags), arguments);
  if (parsed.ok() && parsed->text.empty() && flags.checkpoint.empty()) {
    // A flag's address has been checked.
    const absl::Status address =
        CheckAddress("AGG_COORDINATOR", flags.coordinator);
    if (!address.ok()) parsed = address;
  }
  if (parsed.ok() && !flags.checkpoint.empty() && flags.version.has_value()) {
    // A checkpoint is of one version: another one would be a mistake.
    parsed = FieldError("--version", absl::StrCat(*flags.version),
                        "without --checkpoint");
  }
  if (!parsed.ok()) {
    std::fprintf(stderr, "agg_pull: %s\n",
                 Shown(parsed.status().message(), /*keep_lines=*/true).c_str());
    return 2;
  }
  if (!parsed->text.empty()) {
    std::fputs(parsed->text.c_str(), stdout);
    return 0;
  }
  const absl::Status status = PullToFile(flags);
  if (!status.ok()) {
    std::fprintf(stderr, "agg_pull: %s\n",
                 Shown(status.ToString(), /*keep_lines=*/true).c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  signal(SIGXFSZ, SIG_IGN);  // a file's limit is an error, and not the end
  return agg::Main(std::vector<std::string>(argv + 1, argv + argc));
}
