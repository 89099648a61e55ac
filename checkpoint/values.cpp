#include "checkpoint/values.h"

#include <nlohmann/json.hpp>

namespace ddp {
namespace {

using nlohmann::json;

// Deep enough for any settings, shallow enough for the stack.
constexpr int kMaxDepth = 64;

json parse(std::string_view text) {
  const auto check_depth = [](int depth, json::parse_event_t, json&) {
    if (depth > kMaxDepth) throw std::invalid_argument("the JSON is nested too deeply");
    return true;
  };
  try {
    return json::parse(text, check_depth);
  } catch (const json::exception&) {
    throw std::invalid_argument("this is no JSON: " + std::string(text.substr(0, 60)));
  }
}

json to_value(const CheckpointValues::Value& value) {
  return std::visit(
      [](const auto& given) -> json {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(given)>, JsonText>) {
          return parse(given.text);
        } else {
          return given;
        }
      },
      value);
}

}  // namespace

std::string CheckpointValues::to_json() const {
  json root = json::object();
  for (const auto& [name, value] : values_) root[name] = to_value(value);
  try {
    return root.dump(2);
  } catch (const json::exception&) {
    throw std::invalid_argument("a checkpoint's value or its name is not valid UTF-8");
  }
}

CheckpointValues CheckpointValues::from_json(std::string_view text) {
  const auto root = parse(text);
  if (!root.is_object()) throw std::invalid_argument("the values are no JSON object");
  CheckpointValues values;
  for (const auto& [name, value] : root.items()) {
    if (value.is_boolean()) {
      values.set(name, value.get<bool>());
    } else if (value.is_number_integer()) {
      values.set(name, value.get<int64_t>());
    } else if (value.is_number_float()) {
      values.set(name, value.get<double>());
    } else if (value.is_string()) {
      values.set(name, value.get<std::string>());
    } else {
      values.set(name, JsonText{value.dump()});
    }
  }
  return values;
}

}  // namespace ddp
