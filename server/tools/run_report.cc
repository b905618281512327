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
#include "server/base/json_writer.h"
#include "server/round_log/record_reader.h"
#include "server/status/status_json.h"
#include "server/status/status_page_html.h"

namespace agg {
namespace {

constexpr absl::string_view kPlaceholder =
    "<script type=\"application/json\" id=\"data\">null</script>";

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

}  // namespace

absl::Status RunReport::AddLog(const std::string& path) {
  absl::StatusOr<RecordReader> reader = RecordReader::Open(path);
  if (!reader.ok()) return reader.status();
  v1::RoundLogRecord record;
  for (;;) {
    const absl::StatusOr<bool> more = reader->Next(&record);
    if (!more.ok()) {
      return absl::Status(more.status().code(),
                          absl::StrCat(path, ": ", more.status().message()));
    }
    if (!*more) break;
    if (record.has_run()) BeginRun(FromProto(record.run()));
    Add(FromProto(record));
  }
  truncated_bytes_ += reader->truncated_bytes();
  return absl::OkStatus();
}

void RunReport::BeginRun(const RunDescription& run) {
  // A file of the log begins with the run that the last one ended with.
  if (num_runs_ == 0 || run.started_at != run_.started_at) ++num_runs_;
  if (run.tensors != run_.tensors) {
    const int num_runs = num_runs_;
    *this = RunReport();
    num_runs_ = num_runs;
  }
  run_ = run;
  selection_ = SelectTensors(run.tensors, kMaxReportTensors);
}

void RunReport::Add(const RoundReport& report) {
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

void RunReport::WriteOutcomes(JsonWriter* json) const {
  json->Key("outcomes").BeginObject();
  json->Key("applied").Integer(applied_);
  json->Key("skipped").Integer(skipped_);
  json->Key("excluded_rows").Integer(excluded_rows_);
  json->Key("compensated").Integer(compensated_);
  json->Key("adacons_fallbacks").Integer(adacons_fallbacks_);
  json->EndObject();
}

void RunReport::WriteRun(JsonWriter* json) const {
  const auto line = [json](absl::string_view name, const std::string& value) {
    json->BeginArray().String(name).String(value).EndArray();
  };
  int64_t num_elements = 0;
  for (const auto& tensor : run_.tensors) num_elements += tensor.second;
  const double seconds =
      absl::ToDoubleSeconds(newest_.finished_at - first_finished_at_);
  json->Key("run").BeginArray();
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
  line("final loss", absl::StrCat(newest_.loss));
  line("final learning rate",
       absl::StrCat(newest_applied_.decision.learning_rate));
  line("final gain", absl::StrCat(newest_applied_.decision.gain));
  line("scale-invariant iterations",
       absl::StrCat(newest_applied_.decision.tau));
  line("final orthogonality",
       absl::StrCat(newest_applied_.decision.orthogonality));
  if (stride_ > 1) {
    line("pictures show", absl::StrCat("one round in ", stride_));
  }
  if (num_runs_ > 1) line("starts of the server", absl::StrCat(num_runs_));
  if (truncated_bytes_ > 0) {
    line("left out", absl::StrCat("an unfinished record, ", truncated_bytes_,
                                  " bytes, at the log's end"));
  }
  json->EndArray();
  json->Key("config").String(run_.config);
}

std::string RunReport::Json() const {
  StatusPageOptions page;
  page.metrics.job = run_.job;
  page.metrics.version = run_.server_version;
  page.metrics.workers = run_.workers;
  page.metrics.rule = newest_.combination.rule;
  page.metrics.scope = newest_.combination.scope;
  page.metrics.step_scale = newest_.combination.step_scale;
  page.shards.resize(static_cast<size_t>(
      run_.shards > 0 && run_.shards <= 4096 ? run_.shards : 0));
  JsonWriter json;
  json.BeginObject();
  json.Key("instance").String("report");
  WriteServer(page, &json);
  json.Key("tensors").BeginArray();
  for (const TensorSelection::Tensor& tensor : selection_.tensors) {
    json.String(tensor.name);
  }
  json.EndArray();
  WriteOutcomes(&json);
  json.Key("last");
  if (applied_ > 0) {
    WriteLastRound(newest_applied_, &json);
  } else {
    json.Null();
  }
  json.Key("next").Integer(num_rounds_ + 1);
  json.Key("rounds").BeginArray();
  for (size_t i = 0; i < points_.size(); ++i) {
    WriteRoundPoint(i * static_cast<uint64_t>(stride_) + 1, points_[i], &json);
  }
  if ((num_rounds_ - 1) % stride_ != 0) {
    WriteRoundPoint(static_cast<uint64_t>(num_rounds_), newest_, &json);
  }
  json.EndArray();
  WriteRun(&json);
  json.EndObject();
  return json.Take();
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
  return absl::StrCat(page.substr(0, at),
                      "<script type=\"application/json\" id=\"data\">", Json(),
                      "</script>", page.substr(at + kPlaceholder.size()));
}

}  // namespace agg
