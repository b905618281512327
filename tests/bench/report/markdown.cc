// The table for people: MarkdownOf.
#include <string>
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

std::string KernelLine(const Json& row) {
  const Json& target = row["target"];
  return Line({absl::StrCat(Cell(row["kernel"]), ", ", Cell(row["route"])),
               Cell(row["P"]), Cell(row["dtype"]), Cell(row["optimizer"]),
               Spread(row["gb_per_s"], 1, " GB/s"),
               Spread(row["share_of_copy"], 100, "%"), TargetText(target),
               target.is_null() ? "" : Cell(target["verdict"])});
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
          &lines, Line({"round, rows on the device", Cell(round["P"]),
                        Cell(round["dtype"]), Cell(round["optimizer"]),
                        Spread(round["round_s"], 1e3, " ms"), "", "",
                        absl::StrCat(Spread(round["round_over_traffic"], 1, ""),
                                     " of its memory traffic")}));
    }
  }
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
