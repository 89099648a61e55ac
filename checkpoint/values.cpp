#include <nlohmann/json.hpp>

#include <charconv>

#include "base/json_float.h"
#include "checkpoint/core/shallow_json.h"
#include "ddprun/checkpoint/training_state.h"

namespace ddp {
namespace {

using nlohmann::json;

// The parser would make a floating-point number of a whole one that is too long for it.
void check_whole_numbers(std::string_view text) {
  constexpr std::string_view kNumberCharacters = "0123456789+-.eE";
  bool is_in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_in_text && text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      is_in_text = !is_in_text;
    else if (!is_in_text && kNumberCharacters.substr(0, 12).find(text[i]) != std::string_view::npos) {
      const auto number = text.substr(i, text.substr(i).find_first_not_of(kNumberCharacters));
      i += number.size() - 1;
      if (number.find_first_of(".eE") != std::string_view::npos) continue;
      const auto fits = [&](auto whole) {
        return std::from_chars(number.data(), number.data() + number.size(), whole).ec !=
               std::errc::result_out_of_range;
      };
      if (number.front() == '-' ? fits(int64_t{}) : fits(uint64_t{})) continue;
      throw std::invalid_argument("the whole number " + std::string(number.substr(0, 60)) +
                                  " does not fit into 64 bits");
    }
  }
}

json parse(std::string_view text) {
  if (is_nested_deeper(text, kMaxJsonLevels)) throw std::invalid_argument("the JSON is nested too deeply");
  try {
    return json::parse(text);
  } catch (const json::exception&) {
    throw std::invalid_argument("this is not valid JSON: " + std::string(text.substr(0, 60)));
  }
}

json parse_exactly(std::string_view text) {
  auto value = parse(text);
  check_whole_numbers(text);
  return value;
}

json to_value(const CheckpointValues::Value& value) {
  return std::visit(
      [](const auto& given) -> json {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(given)>, JsonText>) {
          return parse_exactly(given.text);
        } else if constexpr (std::is_same_v<std::remove_cvref_t<decltype(given)>, double>) {
          return json_float<json>(given);
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
  const auto root = parse_exactly(text);
  if (!root.is_object()) throw std::invalid_argument("the values are not a JSON object");
  CheckpointValues values;
  for (const auto& [name, value] : root.items()) {
    if (value.is_boolean()) {
      values.set(name, value.get<bool>());
    } else if (value.is_number_unsigned()) {
      values.set(name, value.get<uint64_t>());
    } else if (value.is_number_integer()) {
      values.set(name, value.get<int64_t>());
    } else if (value.is_number_float()) {
      values.set(name, value.get<double>());
    } else if (value.is_string()) {
      values.set(name, value.get<std::string>());
    } else if (const auto number = named_float(value)) {
      values.set(name, *number);
    } else {
      values.set(name, JsonText{value.dump()});
    }
  }
  return values;
}

}  // namespace ddp
