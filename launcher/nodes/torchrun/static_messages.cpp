#include "launcher/nodes/torchrun/static_messages.h"

#include <nlohmann/json.hpp>

#include "launcher/os/system/json_text.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

using nlohmann::json;

constexpr int kMaxRanks = 1 << 24;
constexpr std::size_t kMaxLines = 36;
constexpr std::size_t kMaxLineBytes = 500;

json parse(std::string_view text) {
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::optional<int> integer(const json& value, int least, int most) {
  if (!value.is_number_integer()) return std::nullopt;
  const auto number = value.get<std::int64_t>();
  if (number < least || number > most) return std::nullopt;
  return static_cast<int>(number);
}

std::optional<int> integer(const json& object, const char* name, int least, int most) {
  const auto found = object.find(name);
  return found == object.end() ? std::nullopt : integer(*found, least, most);
}

}  // namespace

std::string to_json(const RoleInfo& info) {
  return json_text(json{{"role", info.role}, {"rank", info.node}, {"local_world_size", info.local_world_size}});
}

std::string to_json(const NodeRanks& ranks) {
  return json_text(json::array({ranks.first_rank, ranks.world_size, ranks.first_role_rank, ranks.role_world_size}));
}

std::optional<RoleInfo> parse_role_info(std::string_view text) {
  const json object = parse(text);
  if (!object.is_object()) return std::nullopt;
  const auto role = object.find("role");
  const auto node = integer(object, "rank", 0, kMaxRanks);
  const auto size = integer(object, "local_world_size", 1, kMaxRanks);
  if (role == object.end() || !role->is_string() || !node || !size) return std::nullopt;
  return RoleInfo{role->get<std::string>(), *node, *size};
}

std::optional<NodeRanks> parse_node_ranks(std::string_view text) {
  const json array = parse(text);
  if (!array.is_array() || array.size() != 4) return std::nullopt;
  const auto first = integer(array[0], 0, kMaxRanks);
  const auto size = integer(array[1], 1, kMaxRanks);
  const auto first_role = integer(array[2], 0, kMaxRanks);
  const auto role_size = integer(array[3], 1, kMaxRanks);
  if (!first || !size || !first_role || !role_size) return std::nullopt;
  if (*first >= *size || *first_role >= *role_size) return std::nullopt;
  return NodeRanks{*first, *size, *first_role, *role_size};
}

std::string to_json(const FailureNotice& notice) {
  return json_text(json{
      {"node", notice.node}, {"exit_status", notice.exit_status}, {"text", notice.text}, {"details", notice.details}});
}

std::optional<FailureNotice> parse_failure_notice(std::string_view text) {
  const json object = parse(text);
  if (!object.is_object()) return std::nullopt;
  const auto node = integer(object, "node", 0, kMaxRanks);
  const auto status = integer(object, "exit_status", 0, 255);
  const auto words = object.find("text");
  if (!node || !status || words == object.end() || !words->is_string()) return std::nullopt;
  // Every client of the store can write this value, so it is checked.
  const auto shown = [](const json& value) {
    return printable(beginning(value.get_ref<const std::string&>(), kMaxLineBytes));
  };
  FailureNotice notice{.node = *node, .exit_status = *status, .text = shown(*words)};
  const auto details = object.find("details");
  if (details == object.end() || !details->is_array()) return notice;
  for (const json& line : *details) {
    if (line.is_string() && notice.details.size() < kMaxLines) notice.details.push_back(shown(line));
  }
  return notice;
}

}  // namespace launcher
