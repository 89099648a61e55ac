#include "launcher/nodes/control/notice_format.h"

#include <nlohmann/json.hpp>

#include "launcher/os/system/utf8.h"

namespace launcher::control {
namespace {

using nlohmann::json;

constexpr int kMaxSignal = 127;
constexpr std::size_t kMaxLines = 36;
constexpr std::size_t kMaxLine = 500;

json shortened(const std::vector<std::string>& lines) {
  json list = json::array();
  for (const std::string& line : lines) {
    if (list.size() < kMaxLines) list.push_back(printable(beginning(line, kMaxLine)));
  }
  return list;
}

}  // namespace

std::string shortened(const std::string& text, std::size_t most) {
  return std::string(beginning(text, most));
}

json write(const JoinFailure& reason) {
  return json::object({{"text", shortened(reason.text, kMaxText)}, {"status", reason.exit_status}});
}
JoinFailure read_reason(JsonReader& reader, const char* name, int least_status) {
  JsonReader inner = reader.nested_object(name);
  JoinFailure reason{inner.text("text", kMaxText), inner.integer("status", least_status, 255)};
  reader.require(inner);
  return reason;
}

json write(const FailureNotice& notice) {
  const auto time = std::chrono::duration_cast<std::chrono::microseconds>(notice.time.time_since_epoch());
  return json::object({{"node", notice.node},
                       {"status", notice.exit_status},
                       {"time", time.count()},
                       {"text", shortened(notice.text, kMaxText)},
                       {"final", notice.is_final},
                       {"consequence", notice.is_consequence},
                       {"again", notice.may_rejoin},
                       {"signal", notice.stop_signal},
                       {"regrouping", notice.is_regrouping},
                       {"details", shortened(notice.details)}});
}
FailureNotice read_notice(JsonReader& reader, const char* name) {
  JsonReader inner = reader.nested_object(name);
  FailureNotice notice{
      .node = inner.integer("node", 0, kMaxRanks),
      .exit_status = inner.integer("status", 0, 255),
      .text = inner.text("text", kMaxText),
      .time = std::chrono::system_clock::time_point(std::chrono::microseconds(inner.number("time", 0, kMaxClock))),
      .is_consequence = inner.flag("consequence"),
      .is_final = inner.flag("final"),
      .may_rejoin = inner.flag("again"),
      .stop_signal = inner.integer("signal", 0, kMaxSignal),
      .is_regrouping = inner.flag("regrouping"),
      .details = inner.texts("details", kMaxLines, kMaxLine)};
  reader.require(inner);
  return notice;
}

}  // namespace launcher::control
