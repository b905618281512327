// Turns a table of flags into a CLI11 parser, and CLI11's errors into this
// project's: the flag, its value, what is allowed.
#include "server/base/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "server/base/address.h"

namespace agg {
namespace {

constexpr double kDaySeconds = 86400.0;
constexpr int kHelpColumn = 34;

std::string RefusalText(const Flag& flag, absl::string_view text) {
  return absl::StrCat(flag.name, " is \"", text,
                      "\"; allowed: ", flag.value.allowed);
}

// `*refusal` becomes the error's text if the flag's value is not allowed.
// REQUIRES: both outlive `app`.
void AddFlag(const Flag& flag, CLI::App* app, std::string* refusal) {
  CLI::Option* option = app->add_option(
      flag.name,
      [&flag, refusal](const CLI::results_t& texts) {
        for (const std::string& text : texts) {
          if (flag.value.set(text)) continue;
          *refusal = RefusalText(flag, text);
          return false;  // CLI11 throws, and ParseFlags looks at *refusal
        }
        return true;
      },
      flag.help);
  // Every text goes to `set`, also of a flag that is given twice.
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  option->type_name(flag.shown);
  option->required(flag.required);
  if (flag.shown.empty()) option->expected(0);
}

void Describe(const Program& program, CLI::App* app, std::string* refusal) {
  app->option_defaults()->group("Flags");
  app->set_help_flag("-h,--help", "print this and exit");
  if (!program.version.empty()) {
    app->add_flag("--version", "print the version and exit");
  }
  if (!program.commands.empty()) app->require_subcommand(1);
  app->get_formatter()->column_width(kHelpColumn);
  app->get_formatter()->label("OPTIONS", "FLAGS");
  app->get_formatter()->label("SUBCOMMAND", "COMMAND");
  app->get_formatter()->label("Positionals", "Arguments");
  for (const Flag& flag : program.flags) AddFlag(flag, app, refusal);
  for (const Program& command : program.commands) {
    CLI::App* part = app->add_subcommand(command.name, command.summary);
    part->group("Commands");
    part->get_help_ptr()->group("Flags");
    for (const Flag& flag : command.flags) AddFlag(flag, part, refusal);
    for (const Flag& flag : program.flags) AddFlag(flag, part, refusal);
  }
}

// CLI11 wants the arguments in reverse order. It also takes the next argument
// as the value of `--name=`, which is likely `--name=$UNSET` of a script: as
// two arguments the value is the empty text.
std::vector<std::string> Prepare(const std::vector<std::string>& arguments) {
  std::vector<std::string> prepared;
  for (const std::string& argument : arguments) {
    if (absl::StartsWith(argument, "--") &&
        argument.find('=') + 1 == argument.size()) {
      prepared.push_back(argument.substr(0, argument.size() - 1));
      prepared.emplace_back();
    } else {
      prepared.push_back(argument);
    }
  }
  std::reverse(prepared.begin(), prepared.end());
  return prepared;
}

std::string CommandNames(const Program& program) {
  return absl::StrJoin(program.commands, ", ",
                       [](std::string* out, const Program& command) {
                         absl::StrAppend(out, command.name);
                       });
}

std::string FlagNames(const CLI::App& app) {
  return absl::StrJoin(
      app.get_options([](const CLI::Option* o) { return o->nonpositional(); }),
      ", ", [](std::string* out, const CLI::Option* option) {
        absl::StrAppend(out, option->get_name());
      });
}

// The flags that a command line may hold, those of the command first.
std::vector<const Flag*> FlagsOf(const Program& program,
                                 absl::string_view command) {
  std::vector<const Flag*> flags;
  for (const Program& part : program.commands) {
    if (part.name != command) continue;
    for (const Flag& flag : part.flags) flags.push_back(&flag);
  }
  for (const Flag& flag : program.flags) flags.push_back(&flag);
  return flags;
}

// What is wrong with a command line that CLI11 has refused, if it is not a
// value that `set` refused: too few arguments.
std::string LackText(const std::vector<const Flag*>& flags,
                     const CLI::App& used, const std::string& last_argument,
                     const CLI::ParseError& error) {
  for (const Flag* flag : flags) {
    if (flag->required && used.count(flag->name) == 0) {
      return absl::StrCat(flag->name,
                          " is missing; allowed: ", flag->value.allowed);
    }
    if (flag->name == last_argument && !flag->shown.empty()) {
      return RefusalText(*flag, "");
    }
  }
  return error.what();
}

// The command that is given, or the program.
const CLI::App& UsedPart(const CLI::App& app) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  return commands.empty() ? app : *commands.front();
}

// Lets CLI11 parse; what it or a flag refuses, "": nothing. Arguments that are
// too many, and a missing command, are left to ParseFlags.
std::string Parse(const Program& program, std::vector<std::string> prepared,
                  const std::string& refusal, CLI::App* app) {
  const std::string last = prepared.empty() ? "" : prepared.front();
  try {
    app->parse(std::move(prepared));
  } catch (const CLI::ParseError& error) {
    const CLI::App& used = UsedPart(*app);
    if (!refusal.empty()) return refusal;
    return LackText(FlagsOf(program, used.get_name()), used, last, error);
  }
  return "";
}

// About the first argument that nobody takes.
std::string UnexpectedText(const CLI::App& used, const std::string& argument) {
  const bool is_flag = argument.size() > 2 && absl::StartsWith(argument, "--");
  return absl::StrCat(is_flag ? "unknown flag \"" : "unexpected argument \"",
                      argument, "\"; allowed: ", FlagNames(used));
}

}  // namespace

absl::StatusOr<ParsedFlags> ParseFlags(
    const Program& program, const std::vector<std::string>& arguments) {
  std::string refusal;
  CLI::App app(program.summary, program.name);
  Describe(program, &app, &refusal);
  std::string error = Parse(program, Prepare(arguments), refusal, &app);
  const CLI::App& used = UsedPart(app);
  const bool needs_command = !program.commands.empty() && &used == &app;
  const std::vector<std::string> rest = app.remaining(/*recurse=*/true);
  ParsedFlags parsed;
  if (&used != &app) parsed.command = used.get_name();
  if (needs_command && !rest.empty() && !absl::StartsWith(rest[0], "-")) {
    error = absl::StrCat("unknown command \"", rest[0],
                         "\"; allowed: ", CommandNames(program));
  } else if (app.get_help_ptr()->count() + used.get_help_ptr()->count() > 0) {
    parsed.text = app.help();
    return parsed;
  } else if (!program.version.empty() && app.count("--version") > 0) {
    parsed.text = program.version;
    return parsed;
  } else if (!rest.empty()) {
    error = UnexpectedText(used, rest[0]);
  } else if (needs_command && refusal.empty()) {
    error = absl::StrCat("no command; allowed: ", CommandNames(program));
  }
  if (!error.empty()) return absl::InvalidArgumentError(error);
  return parsed;
}

FlagValue AddressValue(std::string* out) {
  return {kAllowedAddresses, [out](const std::string& text) {
            *out = text;
            return ParseAddress(text).ok();
          }};
}

FlagValue HostValue(std::string* out) {
  return {kAllowedHosts, [out](const std::string& text) {
            const absl::StatusOr<std::string> host = ParseHost(text);
            if (host.ok()) *out = *host;
            return host.ok();
          }};
}

FlagValue SecondsValue(double least, absl::Duration* out) {
  return {absl::StrCat(least, " to ", kDaySeconds),
          [least, out](const std::string& text) {
            double seconds;
            if (!absl::SimpleAtod(text, &seconds)) return false;
            if (!(seconds >= least && seconds <= kDaySeconds)) return false;
            *out = absl::Seconds(seconds);
            return true;
          }};
}

}  // namespace agg
