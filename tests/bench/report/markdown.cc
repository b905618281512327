// The table for people: MarkdownOf.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "tests/bench/report/gpu_report.h"

namespace agg {
namespace {

// What a cell shows of a value that may be null. '|' would end the cell.
std::string Cell(const Json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  return absl::StrReplaceAll(value.get<std::string>(),
                             {{"|", "\\|"}, {"\n", " "}});
}

std::string Line(const std::vector<std::string>& cells) {
  return absl::StrCat("| ", absl::StrJoin(cells, " | "), " |\n");
}

// "3.2 (3.1 .. 3.3)", times `scale`.
std::string Spread(const Json& spread, double scale, const char* unit) {
  if (!spread.is_object()) return "";
  for (const char* const name : {"median", "min", "max"}) {
    if (!spread[name].is_number()) return "";
  }
  return absl::StrFormat(
      "%.4g%s (%.4g .. %.4g)", spread["median"].get<double>() * scale, unit,
      spread["min"].get<double>() * scale, spread["max"].get<double>() * scale);
}

std::string TargetText(const Json& target) {
  if (target.is_null()) return "";
  if (target.contains("at_most")) {
    return absl::StrFormat("<= %.4g", target["at_most"].get<double>());
  }
  return absl::StrFormat(">= %.4g%%", 100 * target["at_least"].get<double>());
}

std::string CheckLine(const Json& check) {
  const Json& cases = check["cases"];
  std::string measured = absl::StrCat(check["seconds"].get<int>(), " s");
  if (!cases.is_null()) {
    absl::StrAppend(&measured, ", ", cases["passed"].get<int>(), " cases");
    if (cases["skipped"] != 0) {
      absl::StrAppend(&measured, ", ", cases["skipped"].get<int>(), " skipped");
    }
    if (cases["failed"] != 0) {
      absl::StrAppend(&measured, ", ", cases["failed"].get<int>(), " failed");
    }
  }
  std::string verdict = Cell(check["verdict"]);
  if (!check["reason"].is_null()) {
    absl::StrAppend(&verdict, ": ", Cell(check["reason"]));
  }
  return Line({Cell(check["name"]), "", "", "", measured, "", "", verdict});
}

// Of a row: the member, or null.
Json Member(const Json& row, const char* name) {
  return row.contains(name) ? row[name] : Json();
}

// What explains a kernel's rate, as far as it is known.
std::string KernelNotes(const Json& row) {
  std::vector<std::string> notes;
  for (const char* const of : {"read", "mix"}) {
    const std::string share =
        Spread(Member(row, absl::StrCat("share_of_", of).c_str()), 100, "%");
    if (!share.empty()) notes.push_back(absl::StrCat(share, " of the ", of));
  }
  const Json blocks = Member(row, "blocks_per_sm");
  if (blocks.is_object()) {
    const bool fewer = blocks["driver"] < blocks["expected"];
    notes.push_back(absl::StrCat(
        fewer ? "**" : "", Cell(blocks["driver"]), " of ",
        blocks["expected"].is_null() ? "?" : Cell(blocks["expected"]),
        " blocks per SM", fewer ? "**" : ""));
  }
  const Json mhz = Member(row, "sm_mhz");
  if (mhz.is_object() && mhz["before"].is_number()) {
    notes.push_back(absl::StrCat("SM at ", Cell(mhz["before"]), " .. ",
                                 Cell(mhz["after"]), " MHz"));
  }
  return absl::StrJoin(notes, ", ");
}

std::string KernelLine(const Json& row) {
  const Json& target = row["target"];
  std::string verdict = target.is_null() ? "" : Cell(target["verdict"]);
  const std::string notes = KernelNotes(row);
  if (!notes.empty()) {
    absl::StrAppend(&verdict, verdict.empty() ? "" : "; ", notes);
  }
  return Line({absl::StrCat(Cell(row["kernel"]), ", ", Cell(row["route"])),
               Cell(row["P"]), Cell(row["dtype"]), Cell(row["optimizer"]),
               Spread(row["gb_per_s"], 1, " GB/s"),
               Spread(row["share_of_copy"], 100, "%"), TargetText(target),
               verdict});
}

std::string LimitLine(const std::string& name, const std::string& measured) {
  return measured.empty() ? "" : Line({name, "", "", "", measured, "", "", ""});
}

std::string LimitLines(const Json& report) {
  std::string lines;
  const auto add = [&](const char* part, const char* member, const char* name,
                       const char* unit) {
    if (!report[part].is_object() || !report[part].contains(member)) return;
    absl::StrAppend(&lines,
                    LimitLine(name, Spread(report[part][member], 1, unit)));
  };
  add("copy", "gb_per_s", "copy on the device, read + written", " GB/s");
  add("bus", "host_to_device_gb_per_s", "host to device", " GB/s");
  add("bus", "device_to_host_gb_per_s", "device to host", " GB/s");
  add("fp64", "m8n8k4_tflop_per_s", "fp64 m8n8k4", " TFLOP/s");
  add("fp64", "m16n8k4_tflop_per_s", "fp64 m16n8k4", " TFLOP/s");
  const Json& calls = report["calls"];
  for (const char* const name : {"gram", "update"}) {
    const std::string member = absl::StrCat(name, "_us");
    if (!calls.is_object() || !calls[member].is_number()) continue;
    absl::StrAppend(
        &lines,
        LimitLine(absl::StrCat("a call of ", name, ", 1 Ki elements"),
                  absl::StrFormat("%.4g us", calls[member].get<double>())));
  }
  return lines;
}

// "gram 1.5 ms (1.2 .. 2), update ..".
std::string PartsText(const Json& spreads) {
  std::vector<std::string> parts;
  for (const auto& [name, spread] : spreads.items()) {
    parts.push_back(absl::StrCat(name, " ", Spread(spread, 1e3, " ms")));
  }
  return absl::StrJoin(parts, ", ");
}

// Where a round's time goes, by its server and by its workers.
std::string PartsLines(const Json& round) {
  std::string lines;
  for (const auto& [member, name] :
       {std::pair{"server_s", "its phases on the server"},
        std::pair{"client_s", "its parts in the slowest worker"}}) {
    if (!round.contains(member) || !round[member].is_object()) continue;
    absl::StrAppend(&lines, Line({name, Cell(round["P"]), Cell(round["dtype"]),
                                  Cell(round["optimizer"]),
                                  PartsText(round[member]), "", "", ""}));
  }
  return lines;
}

// A worker on the card, and a shard on the host.
std::string HostWayLines(const Json& host_way) {
  if (!host_way.is_object()) return "";
  std::string lines;
  for (const auto& [name, of] :
       {std::pair{"push", "copy to pinned memory"},
        std::pair{"pull", "copy from pinned memory"}}) {
    absl::StrAppend(
        &lines,
        Line({absl::StrCat(name, ", worker on a card, shard on the host (",
                           Cell(host_way["transport"]), ")"),
              "1", "f32", "",
              Spread(host_way[absl::StrCat(name, "_s")], 1e3, " ms"), "", "",
              absl::StrCat(
                  Spread(host_way[absl::StrCat(name, "_over_copy")], 1, ""),
                  " of a ", of)}));
  }
  return lines;
}

std::string RoundLines(const Json& report) {
  std::string lines;
  if (report["rounds"].is_array()) {
    for (const Json& round : report["rounds"]) {
      absl::StrAppend(
          &lines,
          Line({"round", Cell(round["P"]), Cell(round["dtype"]),
                Cell(round["optimizer"]), Spread(round["round_s"], 1e3, " ms"),
                "", "",
                absl::StrCat(Spread(round["round_over_slower"], 1, ""),
                             " of the slower of transfer and compute")}));
    }
  }
  if (report["device_rounds"].is_array()) {
    for (const Json& round : report["device_rounds"]) {
      absl::StrAppend(
          &lines,
          Line({absl::StrCat("round, rows on the device, workers are ",
                             Cell(round["workers"])),
                Cell(round["P"]), Cell(round["dtype"]),
                Cell(round["optimizer"]), Spread(round["round_s"], 1e3, " ms"),
                "", "",
                absl::StrCat(Spread(round["round_over_traffic"], 1, ""),
                             " of its memory traffic")}),
          PartsLines(round));
    }
  }
  absl::StrAppend(&lines, HostWayLines(report["host_way"]));
  const Json& loopback = report["loopback"];
  if (!loopback.is_object() || !loopback.contains("variants")) return lines;
  for (const Json& variant : loopback["variants"]) {
    absl::StrAppend(
        &lines,
        Line({absl::StrCat("whole round, ", Cell(variant["name"])),
              Cell(loopback["workers"]), "f32", Cell(loopback["optimizer"]),
              Spread(variant["round_s"], 1e3, " ms"), "", "", ""}));
  }
  return lines;
}

// The value is a share of the copy, but for what has an upper bound.
std::string TargetLine(const Json& target) {
  const bool is_ratio = target.contains("at_most");
  std::string value;
  if (target["value"].is_number()) {
    const double number = target["value"];
    value = is_ratio ? absl::StrFormat("%.4g", number)
                     : absl::StrFormat("%.4g%%", 100 * number);
  }
  const Json& at = target["at"];
  return Line({absl::StrCat("**", Cell(target["what"]), "**"),
               at.is_null() ? "" : Cell(at["P"]), "",
               at.is_null() ? "" : Cell(at["optimizer"]), is_ratio ? value : "",
               is_ratio ? "" : value, TargetText(target),
               absl::StrCat("**", Cell(target["verdict"]), "**")});
}

// "CPU, 16 cores, 128 GiB, .."; what is not known is left out.
std::string HostText(const Json& host) {
  std::vector<std::string> words;
  if (host["cpu"].is_string()) words.push_back(host["cpu"]);
  if (host["cores"].is_number()) {
    words.push_back(absl::StrCat(host["cores"].get<int>(), " cores"));
  }
  if (host["memory_bytes"].is_number()) {
    words.push_back(absl::StrFormat(
        "%.0f GiB", host["memory_bytes"].get<double>() / (int64_t{1} << 30)));
  }
  if (host["kernel"].is_string()) words.push_back(host["kernel"]);
  if (host["glibc"].is_string()) {
    words.push_back(absl::StrCat("glibc ", host["glibc"].get<std::string>()));
  }
  return absl::StrJoin(words, ", ");
}

std::string CardText(const Json& card) {
  if (card.is_null()) return "no card";
  std::string text = card["name"].is_string() ? card["name"] : "unknown card";
  if (card["driver"].is_string()) {
    absl::StrAppend(&text, ", driver ", card["driver"].get<std::string>());
  }
  if (card.contains("cuda_runtime") && card["cuda_runtime"].is_string()) {
    absl::StrAppend(&text, ", CUDA ", card["cuda_runtime"].get<std::string>());
  }
  return text;
}

}  // namespace

std::string MarkdownOf(const Json& report) {
  std::string text = absl::StrCat(
      "# GPU checks of agg_server ", Cell(report["revision"]), ", ",
      Cell(report["date"]), ": ", Cell(report["verdict"]), "\n\n",
      CardText(report["card"]), "; ", HostText(report["host"]), "; ",
      Cell(report["seconds"]), " of at most ", Cell(report["limit_s"]),
      " s.\nMedians, with the smallest and the largest value in brackets.\n");
  for (const Json& note : report["notes"]) {
    absl::StrAppend(&text, "Note: ", Cell(note), ".\n");
  }
  absl::StrAppend(&text, "\n",
                  Line({"", "P", "dtype", "optimizer", "measured",
                        "share of copy", "target", "verdict"}),
                  Line(std::vector<std::string>(8, "---")));
  for (const Json& check : report["checks"]) {
    absl::StrAppend(&text, CheckLine(check));
  }
  absl::StrAppend(&text, LimitLines(report));
  for (const Json& row : report["rows"]) {
    absl::StrAppend(&text, KernelLine(row));
  }
  absl::StrAppend(&text, RoundLines(report));
  for (const Json& target : report["targets"]) {
    absl::StrAppend(&text, TargetLine(target));
  }
  return text;
}

}  // namespace agg
