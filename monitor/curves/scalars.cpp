#include "monitor/curves/scalars.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "monitor/curves/tensor_scalar.h"
#include "monitor/wire/message_reader.h"
#include "monitor/wire/record.h"

namespace ddp::curves {
namespace fs = std::filesystem;
namespace {

using wire::MessageReader;
using wire::WireType;

constexpr std::string_view kHyperParameterPlugin = "hparams";

/// What a summary value's SummaryMetadata says of the plugin that it is for.
struct PluginData {
  std::string_view plugin{};
  std::string_view content{};
};

PluginData plugin_data(std::string_view metadata) {
  PluginData data;
  MessageReader reader(metadata);
  while (const auto field = reader.next()) {
    if (field->number != 1 || field->type != WireType::kBytes) continue;
    MessageReader parts(field->bytes);
    while (const auto part = parts.next()) {
      if (part->number == 1) data.plugin = part->bytes;
      if (part->number == 2) data.content = part->bytes;
    }
  }
  return data;
}

/// Calls `use` with the content of each field of that number that holds bytes.
template <typename Use>
void for_each_part(std::string_view message, uint32_t number, Use use) {
  MessageReader reader(message);
  while (const auto field = reader.next()) {
    if (field->number == number && field->type == WireType::kBytes) use(field->bytes);
  }
}

/// The tags that a HParamsPluginData lists as metrics: experiment 2, metric_infos 5, name 1, tag 2.
void add_metrics(std::string_view content, std::set<std::string>& metrics) try {
  for_each_part(content, 2, [&](std::string_view experiment) {
    for_each_part(experiment, 5, [&](std::string_view metric) {
      for_each_part(metric, 1, [&](std::string_view name) {
        for_each_part(name, 2, [&](std::string_view tag) { metrics.emplace(tag); });
      });
    });
  });
} catch (const std::runtime_error&) {
  // Another program's data; the curves do not need it.
}

void add_summary(std::string_view summary, Point point, Run& run) {
  MessageReader reader(summary);
  while (const auto field = reader.next()) {
    if (field->number != 1 || field->type != WireType::kBytes) continue;
    std::string_view tag;
    std::optional<double> value;
    PluginData data;
    MessageReader values(field->bytes);
    while (const auto part = values.next()) {
      if (part->number == 1) tag = part->bytes;
      if (part->number == 2 && part->type == WireType::kFixed32) value = part->as_float();
      if (part->number == 8 && part->type == WireType::kBytes) value = scalar_of_tensor(part->bytes);
      if (part->number == 9 && part->type == WireType::kBytes) data = plugin_data(part->bytes);
    }
    if (data.plugin == kHyperParameterPlugin) {  // its tensor, if it has one, means nothing
      add_metrics(data.content, run.metrics);
      continue;
    }
    if (!value) continue;
    point.value = *value;
    run.curves[std::string(tag)].push_back(point);
  }
}

bool is_session_start(std::string_view session_log) {
  constexpr uint64_t kStart = 1;
  MessageReader reader(session_log);
  while (const auto field = reader.next()) {
    if (field->number == 1) return field->integer == kStart;
  }
  return false;
}

void read_file(const fs::path& file, Run& run, std::vector<std::string>& problems) {
  try {
    wire::RecordReader reader(file);
    while (const auto record = reader.next()) add_event(*record, run);
  } catch (const std::runtime_error& error) {
    const std::string what = error.what();
    const bool names_file = what.find(file.string()) != std::string::npos;
    problems.push_back(names_file ? what : file.string().append(": ").append(what));
  }
}

bool is_event_file(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.is_regular_file(ignored) && entry.path().filename().string().find("tfevents") != std::string::npos;
}

/// The event files in a folder and below it, those of one folder in the order of their names.
std::vector<fs::path> event_files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator entries(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    if (is_event_file(*entries)) files.push_back(entries->path());
  }
  if (error) throw std::runtime_error(folder.string() + ": cannot be read: " + error.message());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

void add_event(std::string_view event, Run& run) {
  Point point;
  std::string_view summary;
  bool restarts = false;
  MessageReader reader(event);
  while (const auto field = reader.next()) {
    if (field->number == 1 && field->type == WireType::kFixed64) point.wall_time = field->as_double();
    if (field->number == 2 && field->type == WireType::kVarint) point.step = static_cast<int64_t>(field->integer);
    if (field->number == 5) summary = field->bytes;
    if (field->number == 7) restarts = is_session_start(field->bytes);
  }
  if (restarts) {
    for (auto& [tag, curve] : run.curves) {
      std::erase_if(curve, [&](const Point& earlier) { return earlier.step >= point.step; });
    }
  }
  add_summary(summary, point, run);
}

Runs read_runs(const fs::path& path) {
  Runs found;
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::status_known(status)) throw std::runtime_error(path.string() + ": cannot be looked at: " + error.message());
  if (!fs::exists(status)) throw std::runtime_error(path.string() + ": no such file or folder");
  const bool is_folder = fs::is_directory(status);
  const auto files = is_folder ? event_files_below(path) : std::vector<fs::path>{path};
  if (files.empty()) throw std::runtime_error(path.string() + ": no event file (…tfevents…) in this folder");
  std::map<std::string, Run> runs;
  for (const fs::path& file : files) {
    const std::string name =
        is_folder ? file.parent_path().lexically_relative(path).string() : file.parent_path().filename().string();
    read_file(file, runs[name], found.problems);
  }
  for (auto& [name, run] : runs) {
    std::erase_if(run.curves, [](const auto& curve) { return curve.second.empty(); });
    run.name = name;
    found.metrics.merge(run.metrics);
    if (!run.curves.empty()) found.runs.push_back(std::move(run));
  }
  return found;
}

}  // namespace ddp::curves
