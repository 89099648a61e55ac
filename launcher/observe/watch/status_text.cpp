#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <set>

#include "base/text_table.h"
#include "launcher/observe/watch/collective_text.h"
#include "launcher/observe/watch/status_document.h"
#include "launcher/os/system/clock_text.h"
#include "launcher/os/system/formatted.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

using nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

std::string duration(double seconds) {
  return duration_text(static_cast<std::uint64_t>(std::max(seconds, 0.0) * 1e6));
}

// The names of all values that a rank reports.
std::vector<std::string> value_names(const ordered_json& document) {
  std::set<std::string> names;
  for (const auto& rank : document.at("ranks")) {
    if (!rank.contains("values")) continue;
    for (const auto& item : rank.at("values").items()) names.insert(item.key());
  }
  return {names.begin(), names.end()};
}

std::string value_text(const ordered_json& rank, const std::string& name) {
  if (!rank.contains("values") || !rank.at("values").contains(name)) return "";
  const auto& value = rank.at("values").at(name);
  return value.is_number() ? formatted("%.4g", value.get<double>()) : value.get<std::string>();
}

// "12.4 ms", "1.2 s"; "" where it is not known.
std::string step_part(const ordered_json& rank, const char* field) {
  if (!rank.contains(field) || !rank.at(field).is_number()) return "";
  const auto seconds = rank.at(field).get<double>();
  return seconds < 1 ? formatted("%.1f ms", seconds * 1e3) : duration(seconds);
}

std::string gpu_text(const ordered_json& rank) {
  if (!rank.contains("gpu")) return "";
  const ordered_json& gpu = rank.at("gpu");
  return formatted("%.0f %%, ", gpu.at("use_percent").get<double>()) +
         bytes_text(gpu.at("memory_bytes").get<std::uint64_t>());
}

bool has_gpus(const ordered_json& document) {
  const auto& ranks = document.at("ranks");
  return std::any_of(ranks.begin(), ranks.end(), [](const auto& rank) { return rank.contains("gpu"); });
}

// Empty until it is known.
std::string rate_text(const ordered_json& rate) {
  return rate.is_number() ? formatted("%.2f", rate.get<double>()) : "";
}

std::vector<std::string> row_of(const ordered_json& rank, const std::vector<std::string>& values, bool gpus) {
  const bool tells = rank.contains("phase");
  const bool runs = rank.at("runs").get<bool>();
  std::vector<std::string> row{std::to_string(rank.at("rank").get<int>()),
                               rank.at("host").get<std::string>(),
                               tells ? rank.at("phase").get<std::string>() : "?",
                               runs ? duration(rank.value(tells ? "phase_seconds" : "idle_seconds", 0.0)) : "",
                               tells ? std::to_string(rank.at("step").get<std::uint64_t>()) : "?",
                               tells ? rate_text(rank.at("steps_per_second")) : "?",
                               step_part(rank, "own_step_seconds"),
                               step_part(rank, "waited_step_seconds")};
  for (const std::string& name : values) row.push_back(value_text(rank, name));
  row.push_back(tells && rank.at("collective").is_object() ? rank.at("collective").at("text").get<std::string>() : "");
  if (gpus) row.push_back(gpu_text(rank));
  row.push_back(rank.contains("memory_bytes") ? bytes_text(rank.at("memory_bytes").get<std::uint64_t>()) : "");
  std::string process = rank.value("process", std::string());
  if (rank.contains("cpu_share")) process += formatted(", %.0f %% CPU", 100 * rank.value("cpu_share", 0.0));
  row.push_back(runs ? process : rank.at("ended").get<std::string>());
  return row;
}

std::string clock_of(double since_epoch) {
  using Clock = std::chrono::system_clock;
  return clock_text(
      Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(since_epoch))));
}

}  // namespace

std::string status_title(const ordered_json& document) {
  std::string text = "job ";
  text.append(document.at("job").get<std::string>()).append(" (ddprun ");
  text.append(std::to_string(document.at("pid").get<int>())).append(" on ");
  text.append(document.at("host").get<std::string>()).append(") for ");
  text.append(duration(document.at("seconds").get<double>()));
  const int attempt = document.at("attempt").get<int>();
  if (attempt > 0) text.append(", restart ").append(std::to_string(attempt));
  text.append(":");
  for (const auto& word : document.at("program")) text.append(" ").append(word.get<std::string>());
  return printable(text);
}

std::vector<std::string> finding_lines(const ordered_json& document) {
  std::vector<std::string> lines;
  if (const auto hang = document.find("hang"); hang != document.end() && hang->is_object()) {
    lines.push_back("no rank has made progress for " + duration(hang->at("seconds").get<double>()) + ": " +
                    hang->at("message").get<std::string>());
  }
  if (const auto wait = document.find("restart_in_seconds"); wait != document.end() && wait->is_number() && *wait > 0) {
    lines.push_back("waits " + duration(wait->get<double>()) + " before restart " +
                    std::to_string(document.at("attempt").get<int>() + 1));
  }
  const ordered_json stragglers = document.value("stragglers", ordered_json::array());
  for (const auto& delay : stragglers) {
    if (delay.at("until").is_null()) lines.push_back(delay.at("message"));
  }
  for (const auto& delay : stragglers) {
    if (!delay.at("until").is_number()) continue;
    lines.push_back("from " + clock_of(delay.at("since").get<double>()) + " to " +
                    clock_of(delay.at("until").get<double>()) + ": " + delay.at("message").get<std::string>());
  }
  for (std::string& line : lines) line = printable(line);
  return lines;
}

std::vector<std::vector<std::string>> status_rows(const ordered_json& document) {
  const auto values = value_names(document);
  const bool gpus = has_gpus(document);
  Rows rows{{"rank", "host", "phase", "since", "step", "steps/s", "own", "waits"}};
  for (const std::string& name : values) rows[0].push_back(name.empty() ? "(no name)" : printable(name));
  rows[0].emplace_back("collective");
  if (gpus) rows[0].emplace_back("GPU");
  for (const char* title : {"memory", "process"}) rows[0].emplace_back(title);
  for (const auto& rank : document.at("ranks")) {
    rows.push_back(row_of(rank, values, gpus));
    for (std::string& cell : rows.back()) cell = printable(cell);
  }
  return rows;
}

namespace {

std::string to_text(const ordered_json& document, std::size_t columns) {
  const auto in_lines = [&](const std::string& line) {
    return columns == 0 ? line + "\n" : ddp::detail::wrapped_text(line, columns);
  };
  std::string text = in_lines(status_title(document));
  for (const std::string& line : finding_lines(document)) text += in_lines(line);
  return text + ddp::detail::text_table(status_rows(document), columns);
}

}  // namespace

std::string status_text(const std::string& document, std::size_t columns) {
  try {
    return to_text(ordered_json::parse(document), columns);
  } catch (const ordered_json::exception&) {
    return "";
  }
}

}  // namespace launcher
