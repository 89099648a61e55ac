#include "launcher/nodes/control/json_reader.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

#include "launcher/os/system/utf8.h"

namespace launcher::control {

const nlohmann::json* JsonReader::member(const char* name) const {
  if (object_ == nullptr) return nullptr;
  const auto found = object_->find(name);
  return found == object_->end() ? nullptr : &*found;
}

bool JsonReader::has(const char* name) const {
  return member(name) != nullptr;
}

std::int64_t JsonReader::number(const char* name, std::int64_t least, std::int64_t most) {
  const nlohmann::json* value = member(name);
  const bool is_integer = value != nullptr && value->is_number_integer();
  // A number above the largest int64 would be converted to a negative one.
  const bool is_huge = is_integer && value->is_number_unsigned() &&
                       value->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  const std::int64_t number = is_integer && !is_huge ? value->get<std::int64_t>() : least;
  is_good_ = is_good_ && is_integer && !is_huge && number >= least && number <= most;
  return std::clamp(number, least, most);
}

bool JsonReader::flag(const char* name) {
  const nlohmann::json* value = member(name);
  is_good_ = is_good_ && value != nullptr && value->is_boolean();
  return is_good_ && value->get<bool>();
}

std::string JsonReader::text(const char* name, std::size_t most) {
  const nlohmann::json* value = member(name);
  is_good_ = is_good_ && value != nullptr && value->is_string();
  return is_good_ ? printable(beginning(value->get_ref<const std::string&>(), most)) : std::string();
}

std::vector<std::string> JsonReader::texts(const char* name, std::size_t most_items, std::size_t most) {
  const nlohmann::json* list = member(name);
  is_good_ = is_good_ && list != nullptr && list->is_array();
  std::vector<std::string> texts;
  for (std::size_t i = 0; is_good_ && i < std::min(most_items, list->size()); ++i) {
    const nlohmann::json& value = (*list)[i];
    is_good_ = value.is_string();
    if (is_good_) texts.push_back(printable(beginning(value.get_ref<const std::string&>(), most)));
  }
  return texts;
}

JsonReader JsonReader::nested_object(const char* name) {
  const nlohmann::json* value = member(name);
  is_good_ = is_good_ && value != nullptr && value->is_object();
  JsonReader inner = *this;
  inner.object_ = is_good_ ? value : nullptr;
  return inner;
}

}  // namespace launcher::control
