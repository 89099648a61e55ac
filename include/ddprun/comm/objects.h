// Strings and JSON values between ranks. Every rank of the group must call the same function; texts may differ in
// length and hold any byte. They travel through the CPU's backend where there is one. Throw as the reductions do.
#pragma once

#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// Rank `root`'s text on every rank (the argument is ignored elsewhere).
std::string broadcast_string(const std::string& text, int root, const GroupHandle& group);

/// Every rank's text, in rank order, on every rank.
std::vector<std::string> all_gather_strings(const std::string& text, const GroupHandle& group);

/// Every rank's text, in rank order, on rank `root`; an empty list on the other ranks.
std::vector<std::string> gather_strings(const std::string& text, int root, const GroupHandle& group);

/// The same with JSON values. `Json` is a class with dump() and a static parse(std::string), such as nlohmann::json;
/// what its parse() throws passes through.
template <typename Json>
Json broadcast_json(const Json& value, int root, const GroupHandle& group) {
  return Json::parse(broadcast_string(group.rank() == root ? value.dump() : "", root, group));
}

template <typename Json>
std::vector<Json> all_gather_json(const Json& value, const GroupHandle& group) {
  std::vector<Json> values;
  for (const std::string& text : all_gather_strings(value.dump(), group)) values.push_back(Json::parse(text));
  return values;
}

template <typename Json>
std::vector<Json> gather_json(const Json& value, int root, const GroupHandle& group) {
  std::vector<Json> values;
  for (const std::string& text : gather_strings(value.dump(), root, group)) values.push_back(Json::parse(text));
  return values;
}

}  // namespace ddp
