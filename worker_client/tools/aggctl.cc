// aggctl: looks at a running job and changes it. README.md describes it.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/base/utf8.h"
#include "worker_client/channel.h"
#include "worker_client/tools/admin_client.h"
#include "worker_client/tools/aggctl_commands.h"
#include "worker_client/tools/aggctl_flags.h"

namespace agg {
namespace {

int Fail(const AggctlResult& result) {
  std::fprintf(stderr, "aggctl: %s\n",
               Shown(result.message, /*keep_lines=*/true).c_str());
  return result.code;
}

// False when standard output is gone: a closed pipe, a full disk.
bool Print(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

int Main(const std::vector<std::string>& arguments) {
  absl::StatusOr<AggctlFlags> flags =
      ParseAggctlFlags(arguments, std::getenv("AGG_COORDINATOR"));
  if (!flags.ok()) {
    return Fail({kAggctlUsage, std::string(flags.status().message())});
  }
  flags->tls = WithTlsEnvironment(flags->tls);
  flags->token_file = WithTokenEnvironment(flags->token_file);
  const AggctlOutput output = {Print, isatty(STDOUT_FILENO) != 0};
  AggctlResult result;
  if (!flags->text.empty()) {
    result = Emit(output, flags->text);
  } else if (flags->command == "completion") {
    const std::string script = AggctlCompletion(flags->argument);
    result =
        !script.empty()
            ? Emit(output, script)
            : AggctlResult{kAggctlUsage,
                           absl::StrCat("no completion for \"", flags->argument,
                                        "\"; allowed: bash, zsh, fish")};
  } else {
    result = RunAggctl(*flags, output);
  }
  return result.ok() ? kAggctlOk : Fail(result);
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  signal(SIGXFSZ, SIG_IGN);  // a file's limit is an error, and not the end
  return agg::Main(std::vector<std::string>(argv + 1, argv + argc));
}
