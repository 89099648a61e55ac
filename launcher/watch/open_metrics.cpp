#include <nlohmann/json.hpp>

#include <functional>
#include <optional>
#include <string>

#include "launcher/watch/status_document.h"

namespace launcher {
namespace {

using nlohmann::ordered_json;

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result;
}

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
    const std::string number = value.is_number()    ? value.dump()
                               : value.is_boolean() ? (value.get<bool>() ? "1" : "0")
                                                    : "NaN";
    out_ += "ddprun_" + name_ + suffix_ + "{" + labels(document_, rank) + more + "} " + number + "\n";
  }
  void samples(const char* field) {
    for (const auto& rank : document_.at("ranks")) {
      if (rank.contains(field)) sample(rank, rank.at(field));
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
  Family(out, document, "collectives", "counter", "Collectives that were begun.").samples("collectives");
  Family(out, document, "idle_seconds", "gauge", "Time without progress.").samples("idle_seconds");
  Family(out, document, "memory_bytes", "gauge", "Resident memory.").samples("memory_bytes");
  Family(out, document, "cpu_share", "gauge", "Processors in use.").samples("cpu_share");
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
