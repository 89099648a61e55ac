#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "launcher/observe/watch/status_document.h"

namespace launcher {
namespace {

using nlohmann::ordered_json;

// A label's value; what is no UTF-8 in it is replaced, as the whole page would be refused, and what a terminal would
// obey.
std::string escaped(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::string_view character = text.substr(0, ddp::detail::first_character(text).length);
    text.remove_prefix(character.size());
    if (character == "\\" || character == "\"") result += '\\';
    result += character == "\n" ? "\\n" : ddp::detail::shown_text(character);
  }
  return result;
}

std::string number_text(const ordered_json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  if (value == "inf") return "+Inf";
  if (value == "-inf") return "-Inf";
  if (value == "nan") return "NaN";
  if (value.is_string()) return "1";
  return value.is_number() ? value.dump() : "NaN";
}

struct GpuGauge {
  const char* name;
  const char* field;
  const char* help;
};
constexpr std::array kGpuGauges = {GpuGauge{"gpu_use_percent", "use_percent", "Time in which the rank's GPU worked."},
                                   GpuGauge{"gpu_memory_bytes", "memory_bytes", "Memory in use on the rank's GPU."},
                                   GpuGauge{"gpu_clock_mhz", "clock_mhz", "Clock of the rank's GPU."},
                                   GpuGauge{"gpu_celsius", "celsius", "Temperature of the rank's GPU."}};

std::string labels(const ordered_json& document, const ordered_json& rank) {
  return "job=\"" + escaped(document.at("job").get<std::string>()) + "\",rank=\"" +
         std::to_string(rank.at("rank").get<int>()) + "\",host=\"" + escaped(rank.at("host").get<std::string>()) + "\"";
}

// One family of metrics, with one sample for each rank that has it.
class Family {
 public:
  Family(std::string& out, const ordered_json& document, const std::string& name, const char* type, const char* help)
      : out_(out), document_(document), name_(name), suffix_(std::string(type) == "counter" ? "_total" : "") {
    out_ += "# TYPE ddprun_" + name + " " + type + "\n# HELP ddprun_" + name + " " + help + "\n";
  }
  void sample(const ordered_json& rank, const ordered_json& value, const std::string& more = "") {
    out_ += "ddprun_" + name_ + suffix_ + "{" + labels(document_, rank) + more + "} " + number_text(value) + "\n";
  }
  void samples(const char* field) {
    for (const auto& rank : document_.at("ranks")) {
      if (rank.contains(field) && !rank.at(field).is_null()) sample(rank, rank.at(field));
    }
  }

 private:
  std::string& out_;
  const ordered_json& document_;
  std::string name_;
  std::string suffix_;
};

}  // namespace

std::string open_metrics(const ordered_json& document) {
  std::string out;
  Family(out, document, "up", "gauge", "The rank runs.").samples("runs");
  Family(out, document, "steps", "counter", "Training steps that have ended.").samples("step");
  Family(out, document, "steps_per_second", "gauge", "Training steps in a second.").samples("steps_per_second");
  Family(out, document, "own_step_seconds", "gauge", "A step's time lately, without waiting for other ranks.")
      .samples("own_step_seconds");
  Family(out, document, "waited_step_seconds", "gauge", "A step's time lately in which the rank waited for others.")
      .samples("waited_step_seconds");
  Family(out, document, "straggler", "gauge", "The rank delays the others.").samples("holds_up");
  Family(out, document, "collectives", "counter", "Collectives that were begun.").samples("collectives");
  Family(out, document, "idle_seconds", "gauge", "Time without progress.").samples("idle_seconds");
  Family(out, document, "memory_bytes", "gauge", "Resident memory.").samples("memory_bytes");
  Family(out, document, "cpu_share", "gauge", "Processors in use.").samples("cpu_share");
  for (const auto& [name, field, help] : kGpuGauges) {
    Family gauge(out, document, name, "gauge", help);
    for (const auto& rank : document.at("ranks")) {
      if (rank.contains("gpu")) gauge.sample(rank, rank.at("gpu").at(field));
    }
  }
  Family phases(out, document, "phase_seconds", "counter", "Time in each phase.");
  for (const auto& rank : document.at("ranks")) {
    if (!rank.contains("seconds_in_phases")) continue;
    for (const auto& item : rank.at("seconds_in_phases").items()) {
      phases.sample(rank, item.value(), ",phase=\"" + escaped(item.key()) + "\"");
    }
  }
  Family values(out, document, "value", "gauge", "What the program reports.");
  for (const auto& rank : document.at("ranks")) {
    if (!rank.contains("values")) continue;
    for (const auto& item : rank.at("values").items()) {
      values.sample(rank, item.value(), ",name=\"" + escaped(item.key()) + "\"");
    }
  }
  return out + "# EOF\n";
}

}  // namespace launcher
