#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "launcher/observe/watch/status_document.h"

namespace launcher {
namespace {

using nlohmann::ordered_json;

// Escapes the value of a label. Bytes that are not UTF-8 are replaced, as Prometheus would refuse the whole page, and
// so are control characters of terminals.
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
  return value.is_number() ? value.dump() : "NaN";
}

// What Prometheus calls a metric family. Its name ends with its unit, if it has one.
struct MetricFamily {
  const char* name;
  const char* type;
  const char* unit;
  const char* help;
};

// A family with one value for each rank, from this field of the rank's object.
struct RankFamily {
  MetricFamily family;
  const char* field;
};
constexpr std::array kRankFamilies = {
    RankFamily{{"up", "gauge", "", "1 if the rank is running."}, "runs"},
    RankFamily{{"steps", "counter", "", "Completed training steps."}, "step"},
    RankFamily{{"steps_per_second", "gauge", "", "Recent training steps per second."}, "steps_per_second"},
    RankFamily{{"own_step_seconds", "gauge", "seconds", "Time of recent steps, without waiting for other ranks."},
               "own_step_seconds"},
    RankFamily{{"waited_step_seconds", "gauge", "seconds", "Time of recent steps in which the rank waited for others."},
               "waited_step_seconds"},
    RankFamily{{"collectives", "counter", "", "Collectives that were started."}, "collectives"},
    RankFamily{{"idle_seconds", "gauge", "seconds", "Time since the last progress of the rank."}, "idle_seconds"},
    RankFamily{{"memory_bytes", "gauge", "bytes", "Resident memory of the rank's processes."}, "memory_bytes"},
    RankFamily{{"cpu_share", "gauge", "", "CPUs that the rank's processes use, as a number."}, "cpu_share"}};

// A family with one value for each rank's GPU; the driver's number is multiplied by `scale`.
struct GpuFamily {
  MetricFamily family;
  const char* field;
  double scale;
};
constexpr std::array kGpuFamilies = {
    GpuFamily{{"gpu_use_ratio", "gauge", "ratio", "Utilization of the rank's GPU, 0 to 1."}, "use_percent", 0.01},
    GpuFamily{{"gpu_memory_bytes", "gauge", "bytes", "Memory in use on the rank's GPU."}, "memory_bytes", 1},
    GpuFamily{{"gpu_clock_hertz", "gauge", "hertz", "Clock frequency of the rank's GPU."}, "clock_mhz", 1e6},
    GpuFamily{{"gpu_temperature_celsius", "gauge", "celsius", "Temperature of the rank's GPU."}, "celsius", 1}};

// Returns the labels of a rank; with null those of the job.
std::string label_text(const ordered_json& document, const ordered_json* rank) {
  const std::string host = (rank != nullptr ? *rank : document).value("host", std::string());
  const std::string number = rank != nullptr ? ",rank=\"" + std::to_string(rank->at("rank").get<int>()) + "\"" : "";
  return "run=\"" + escaped(document.at("job").get<std::string>()) + "\"" + number + ",host=\"" + escaped(host) + "\"";
}

// The text of a page: metric families with their samples, in either format.
class MetricsPage {
 public:
  MetricsPage(const ordered_json& document, MetricsFormat format) : document_(document), format_(format) {}

  void begin(const MetricFamily& family) {
    const bool is_counter = std::string_view(family.type) == "counter";
    const std::string name = std::string("ddprun_") + family.name;
    const bool is_open = format_ == MetricsFormat::kOpenMetrics;
    sample_name_ = is_counter ? name + "_total" : name;
    const std::string& named = is_open ? name : sample_name_;
    if (!is_open) text_ += "# HELP " + named + " " + family.help + "\n";
    text_ += "# TYPE " + named + " " + family.type + "\n";
    if (is_open && *family.unit != 0) text_ += "# UNIT " + named + " " + family.unit + "\n";
    if (is_open) text_ += "# HELP " + named + " " + family.help + "\n";
  }
  void sample(const ordered_json* rank, const ordered_json& value, const std::string& more = "") {
    text_ += sample_name_ + "{" + label_text(document_, rank) + more + "} " + number_text(value) + "\n";
  }
  std::string text() const { return format_ == MetricsFormat::kOpenMetrics ? text_ + "# EOF\n" : text_; }

 private:
  const ordered_json& document_;
  const MetricsFormat format_;
  std::string text_;
  std::string sample_name_;
};

void add_hang(MetricsPage& page, const ordered_json& document) {
  const ordered_json hang = document.value("hang", ordered_json());
  page.begin({"hang", "gauge", "", "1 if no rank has made progress for longer than --hang_timeout."});
  page.sample(nullptr, hang.is_object());
  page.begin({"hang_seconds", "gauge", "seconds", "Duration of the current hang; 0 without a hang."});
  page.sample(nullptr, hang.is_object() ? hang.at("seconds") : ordered_json(0));
  page.begin({"hang_cause", "gauge", "", "1 if this rank causes the current hang."});
  for (const auto& rank : document.at("ranks")) {
    const bool is_cause = hang.is_object() && std::find(hang.at("ranks").begin(), hang.at("ranks").end(),
                                                        rank.at("rank")) != hang.at("ranks").end();
    page.sample(&rank, is_cause);
  }
}

void add_stragglers(MetricsPage& page, const ordered_json& document) {
  page.begin({"straggler", "gauge", "", "1 if this rank delays the others."});
  for (const auto& rank : document.at("ranks")) {
    if (rank.contains("holds_up")) page.sample(&rank, !rank.at("holds_up").is_null());
  }
}

// Adds one sample for each entry of the rank's object `field`, with the entry's name as a label.
void add_named(MetricsPage& page, const ordered_json& document, const char* field, const char* label) {
  for (const auto& rank : document.at("ranks")) {
    if (!rank.contains(field)) continue;
    for (const auto& item : rank.at(field).items()) {
      page.sample(&rank, item.value(), std::string(",") + label + "=\"" + escaped(item.key()) + "\"");
    }
  }
}

}  // namespace

std::string metrics_text(const ordered_json& document, MetricsFormat format) {
  MetricsPage page(document, format);
  add_hang(page, document);
  add_stragglers(page, document);
  for (const RankFamily& each : kRankFamilies) {
    page.begin(each.family);
    for (const auto& rank : document.at("ranks")) {
      if (rank.contains(each.field) && !rank.at(each.field).is_null()) page.sample(&rank, rank.at(each.field));
    }
  }
  for (const GpuFamily& each : kGpuFamilies) {
    page.begin(each.family);
    for (const auto& rank : document.at("ranks")) {
      if (rank.contains("gpu")) page.sample(&rank, rank.at("gpu").at(each.field).get<double>() * each.scale);
    }
  }
  page.begin({"phase_seconds", "counter", "seconds", "Time that the rank spent in each phase."});
  add_named(page, document, "seconds_in_phases", "phase");
  page.begin({"value", "gauge", "", "Values that the program reports, by name."});
  add_named(page, document, "values", "name");
  return page.text();
}

}  // namespace launcher
