// The command lines of all programs: each one describes its flags as a table,
// and CLI11 reads the arguments by it. Apart from the programs so that CLI11,
// which takes seconds to compile, is included by one source only.
#ifndef AGG_SERVER_BASE_FLAGS_H_
#define AGG_SERVER_BASE_FLAGS_H_

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/time/time.h"

namespace agg {

// What takes a flag's text. A flag that is given several times is set several
// times, in order: the last value stays, or a list grows.
struct FlagValue {
  std::string allowed;  // for errors: "0 to 65535"
  // False if the text is not allowed.
  std::function<bool(const std::string& text)> set;
};

struct Flag {
  std::string name;   // "--port"; without dashes: an argument by its place
  std::string shown;  // the value in usage: "PORT", "table|json"; "": a switch
  std::string help;   // one line
  FlagValue value;
  // Only in a command, or in a program without commands.
  bool required = false;
};

// A program, or one of a program's commands.
struct Program {
  std::string name;
  std::string summary;
  std::vector<Flag> flags;             // of each of its commands, too
  std::vector<Program> commands = {};  // one level; empty: no commands
  std::string version = {};  // what --version prints; "": no such flag
};

struct ParsedFlags {
  std::string command;  // "" in a program without commands
  std::string text;     // what --help or --version print; "": neither is given
};

// Reads `--name=value`, `--name value`, `--switch`, `--switch=false`, and -h
// and --help, which every program and command has. Flags of the program may
// stand before or after the command, flags of a command only after it. Help
// and version come before errors. INVALID_ARGUMENT in one line that names the
// flag, the value and what is allowed; some flags may be set by then.
// REQUIRES: valid, distinct names; `program` outlives the call. Thread-safe if
// what the flags set is.
absl::StatusOr<ParsedFlags> ParseFlags(
    const Program& program, const std::vector<std::string>& arguments);

// The values "true" and "false" (and those that absl::SimpleAtob knows). `out`
// must outlive the returned value, here and below; it may be an optional.
template <typename Out>
FlagValue SwitchValue(Out* out) {
  return {"true, false", [out](const std::string& text) {
            bool value;
            if (!absl::SimpleAtob(text, &value)) return false;
            *out = value;
            return true;
          }};
}

// Any text but the empty one.
template <typename Out>
FlagValue TextValue(Out* out, const std::string& allowed = "not empty") {
  return {allowed, [out](const std::string& text) {
            *out = text;
            return !text.empty();
          }};
}

// Numbers from `least` to `most`, both included; NaN is not among them.
template <typename T, typename Out>
FlagValue NumberValue(T least, T most, const std::string& allowed, Out* out) {
  return {allowed, [least, most, out](const std::string& text) {
            T value;
            if constexpr (std::is_floating_point_v<T>) {
              if (!absl::SimpleAtod(text, &value)) return false;
            } else {
              if (!absl::SimpleAtoi(text, &value)) return false;
            }
            if (!(value >= least && value <= most)) return false;
            *out = value;
            return true;
          }};
}

// "host:port", and a host alone, which is stored without brackets
// (server/base/address.h).
FlagValue AddressValue(std::string* out);
FlagValue HostValue(std::string* out);

// Seconds from `least` to a day.
FlagValue SecondsValue(double least, absl::Duration* out);

}  // namespace agg

#endif  // AGG_SERVER_BASE_FLAGS_H_
