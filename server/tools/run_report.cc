// A run's rounds, thinned out as they are read, and the page's data that they
// make: a log may hold millions of rounds, a report thousands.
#include "server/tools/run_report.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "server/base/json.h"
#include "server/base/status_macros.h"
#include "server/round/combination_names.h"
#include "server/round/round_numbers.h"
#include "server/round_log/record_file.h"
#include "server/status/status_json.h"
#include "server/status/status_page_html.h"

namespace agg {
namespace {

constexpr absl::string_view kPlaceholder =
    "<script type=\"application/json\" id=\"data\">null</script>";

constexpr int kMaxShards = 4096;

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

bool Same(const CombinationNames& a, const CombinationNames& b) {
  return a.rule == b.rule && a.scope == b.scope && a.step_scale == b.step_scale;
}

std::string TextOf(const CombinationNames& names) {
  return absl::StrCat(names.rule, ", ", names.scope, ", step scale ",
                      names.step_scale);
}

}  // namespace

absl::Status RunReport::AddLog(const std::string& path) {
  AGG_ASSIGN_OR_RETURN(RecordReader reader, RecordReader::Open(path));
  v1::RoundLogRecord record;
  for (;;) {
    const absl::StatusOr<bool> more = reader.Next(&record);
    if (!more.ok()) {
      return absl::Status(more.status().code(),
                          absl::StrCat(path, ": ", more.status().message()));
    }
    if (!*more) break;
    if (record.has_run()) BeginRun(FromProto(record.run()));
    if (!record.restored()) Add(FromProto(record));
  }
  const int64_t truncated_bytes = reader.truncated_bytes();
  truncated_bytes_ += truncated_bytes;
  if (truncated_bytes > 0) {
    notes_.push_back(absl::StrCat(
        path, ": the last ", truncated_bytes,
        " bytes could not be read: a record that was cut short. The report "
        "has the rounds before it"));
  }
  return absl::OkStatus();
}

void RunReport::BeginRun(const RunDescription& run) {
  // A file of the log begins with the run that the last one ended with.
  if (num_runs_ == 0 || run.started_at != run_.started_at) ++num_runs_;
  if (run.tensors != run_.tensors) {
    RunReport next;
    next.num_runs_ = num_runs_;
    // Notes are about logs, which another model's rounds do not make complete.
    next.truncated_bytes_ = truncated_bytes_;
    next.notes_ = std::move(notes_);
    *this = std::move(next);
  }
  run_ = run;
  selection_ = SelectTensors(run.tensors, kMaxReportTensors);
}

void RunReport::Add(const RoundReport& report) {
  NoteCombination(report);
  newest_ = MakeRoundPoint(selection_, report);
  if (num_rounds_ == 0) first_finished_at_ = report.finished_at;
  if (num_rounds_ % stride_ == 0) Keep(newest_);
  ++num_rounds_;
  ++(report.applied ? applied_ : skipped_);
  excluded_rows_ += newest_.num_excluded;
  compensated_ += report.decision.compensated ? 1 : 0;
  adacons_fallbacks_ += report.decision.adacons_fallback ? 1 : 0;
  examples_ += newest_.examples;
  if (report.applied) newest_applied_ = report;
}

void RunReport::NoteCombination(const RoundReport& report) {
  if (num_rounds_ > 0 && Same(report.combination, newest_.combination)) return;
  ++num_combinations_;
  if (num_combinations_ <= kMaxReportChanges + 1) {
    combinations_.emplace_back(report.round, report.combination);
  }
}

// Under the title, where a line has room for two.
std::string RunReport::CombinedText() const {
  if (num_combinations_ > 2) {
    return absl::StrCat(
        "rule changed ", num_combinations_ - 1,
        " times (see Run), last: ", TextOf(newest_.combination));
  }
  std::string text = TextOf(combinations_[0].second);
  if (num_combinations_ == 2) {
    absl::StrAppend(&text, "; from round ", combinations_[1].first,
                    " on: ", TextOf(combinations_[1].second));
  }
  return text;
}

std::string RunReport::ChangesText() const {
  std::string text;
  for (const auto& [round, names] : combinations_) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "from round ", round,
                    " on: ", TextOf(names));
  }
  const size_t num_more = num_combinations_ - combinations_.size();
  if (num_more > 0) absl::StrAppend(&text, "; and ", num_more, " more changes");
  return text;
}

void RunReport::Keep(RoundPoint point) {
  if (points_.size() == kMaxReportRounds) {
    for (size_t i = 0; 2 * i < points_.size(); ++i) {
      if (i > 0) points_[i] = std::move(points_[2 * i]);
    }
    points_.resize((points_.size() + 1) / 2);
    stride_ *= 2;
    if (num_rounds_ % stride_ != 0) return;
  }
  points_.push_back(std::move(point));
}

void RunReport::AddFacts(Json* lines) const {
  const auto line = [lines](const std::string& name, const std::string& value) {
    lines->push_back(Json::array({name, value}));
  };
  int64_t num_elements = 0;
  for (const auto& tensor : run_.tensors) num_elements += tensor.second;
  const double seconds =
      absl::ToDoubleSeconds(newest_.finished_at - first_finished_at_);
  line("first round ended", TimeText(first_finished_at_));
  line("last round ended", TimeText(newest_.finished_at));
  if (seconds > 0.0) {
    line("rounds per second",
         absl::StrCat(static_cast<double>(num_rounds_ - 1) / seconds));
  }
  line("rounds", absl::StrCat(num_rounds_));
  line("last round", absl::StrCat(newest_.round));
  line("examples used", absl::StrCat(examples_));
  line("model", absl::StrCat(num_elements, " parameters in ",
                             run_.tensors.size(), " tensors"));
}

void RunReport::AddNumbers(Json* lines) const {
  for (size_t i = 0; i < RoundNumbers().size(); ++i) {
    const RoundNumber& number = RoundNumbers()[i];
    const std::string label = LabelIn(number, &RoundOutlets::report);
    if (label.empty()) continue;
    const double value = number.set_by == SetBy::kEvery
                             ? newest_.numbers[i]
                             : number.value.Get(newest_applied_);
    lines->push_back(Json::array({label, absl::StrCat(value)}));
  }
}

Json RunReport::RunJson() const {
  Json lines = Json::array();
  const auto line = [&](const char* name, const std::string& value) {
    lines.push_back(Json::array({name, value}));
  };
  AddFacts(&lines);
  AddNumbers(&lines);
  if (num_combinations_ > 1) line("combined by", ChangesText());
  if (stride_ > 1) {
    line("pictures show", absl::StrCat("one round in ", stride_));
  }
  if (num_runs_ > 1) line("starts of the server", absl::StrCat(num_runs_));
  if (truncated_bytes_ > 0) {
    line("left out", absl::StrCat("an unfinished record, ", truncated_bytes_,
                                  " bytes, at the log's end"));
  }
  return lines;
}

Json RunReport::RoundsJson() const {
  Json rounds = Json::array();
  for (size_t i = 0; i < points_.size(); ++i) {
    rounds.push_back(
        RoundPointJson(i * static_cast<uint64_t>(stride_) + 1, points_[i]));
  }
  // The last round is shown even where the stride leaves it out.
  if ((num_rounds_ - 1) % stride_ != 0) {
    rounds.push_back(
        RoundPointJson(static_cast<uint64_t>(num_rounds_), newest_));
  }
  return rounds;
}

std::string RunReport::DataText() const {
  StatusPageOptions page;
  page.metrics.job = run_.job;
  page.metrics.version = run_.server_version;
  page.metrics.workers = run_.workers;
  page.metrics.rule = newest_.combination.rule;
  page.metrics.scope = newest_.combination.scope;
  page.metrics.step_scale = newest_.combination.step_scale;
  // The page wants their number, and a log's may be any.
  page.shards.resize(static_cast<size_t>(
      run_.shards > 0 && run_.shards <= kMaxShards ? run_.shards : 0));
  Json json;
  json["instance"] = "report";
  json["server"] = ServerJson(page);
  json["tensors"] = TensorsJson(selection_);
  json["numbers"] = TilesJson();
  json["outcomes"] = {{"applied", applied_},
                      {"skipped", skipped_},
                      {"excluded_rows", excluded_rows_},
                      {"compensated", compensated_},
                      {"adacons_fallbacks", adacons_fallbacks_}};
  json["last"] = applied_ > 0 ? RoundDetailJson(newest_applied_) : Json();
  json["next"] = num_rounds_ + 1;
  json["rounds"] = RoundsJson();
  json["run"] = RunJson();
  json["combined"] = CombinedText();
  json["config"] = run_.config;
  return CompactJson(json);
}

absl::StatusOr<std::string> RunReport::Html() const {
  if (num_rounds_ == 0) {
    return absl::FailedPreconditionError("no round is in the log");
  }
  const absl::string_view page = StatusPageHtml();
  const size_t at = page.find(kPlaceholder);
  if (at == absl::string_view::npos) {
    return absl::InternalError("the page has no place for data");
  }
  return absl::StrCat(
      page.substr(0, at), "<script type=\"application/json\" id=\"data\">",
      DataText(), "</script>", page.substr(at + kPlaceholder.size()));
}

}  // namespace agg
