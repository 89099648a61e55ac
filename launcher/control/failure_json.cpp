#include "launcher/control/failure_json.h"

#include <nlohmann/json.hpp>

#include <chrono>

#include "launcher/system/utf8.h"

namespace launcher::control {

using nlohmann::json;
using std::chrono::microseconds;

std::string shortened(const std::string& text, std::size_t most) {
  return std::string(beginning(text, most));
}

json write(const JoinFailure& reason) {
  return json::object({{"text", shortened(reason.text, kMaxText)}, {"status", reason.exit_status}});
}
JoinFailure read_reason(JsonReader& reader, const char* name, int least_status) {
  JsonReader inner = reader.inside(name);
  JoinFailure reason{inner.text("text", kMaxText), inner.integer("status", least_status, 255)};
  reader.require(inner);
  return reason;
}

json write(const FailureNotice& notice) {
  const auto time = std::chrono::duration_cast<microseconds>(notice.time.time_since_epoch());
  return json::object({{"node", notice.node},
                       {"status", notice.exit_status},
                       {"time", time.count()},
                       {"text", shortened(notice.text, kMaxText)},
                       {"final", notice.is_final},
                       {"consequence", notice.is_consequence},
                       {"again", notice.may_come_again},
                       {"regrouping", notice.is_regrouping}});
}
FailureNotice read_notice(JsonReader& reader, const char* name) {
  JsonReader inner = reader.inside(name);
  FailureNotice notice{.node = inner.integer("node", 0, kMaxRanks),
                       .exit_status = inner.integer("status", 0, 255),
                       .text = inner.text("text", kMaxText),
                       .time = std::chrono::system_clock::time_point(microseconds(inner.number("time", 0, kMaxClock))),
                       .is_consequence = inner.flag("consequence"),
                       .is_final = inner.flag("final"),
                       .may_come_again = inner.flag("again"),
                       .is_regrouping = inner.flag("regrouping")};
  reader.require(inner);
  return notice;
}

}  // namespace launcher::control
