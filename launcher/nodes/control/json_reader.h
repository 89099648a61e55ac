// Reads the members of a JSON object from another program. Each member is checked. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace launcher::control {

class JsonReader {
 public:
  // `object` must outlive the reader.
  explicit JsonReader(const nlohmann::json& object) : object_(&object) {}

  // All that was read so far was there, and within its bounds. What was not comes as the least value, or as "".
  bool is_good() const { return is_good_; }

  bool has(const char* name) const;
  std::int64_t number(const char* name, std::int64_t least, std::int64_t most);
  int integer(const char* name, int least, int most) { return static_cast<int>(number(name, least, most)); }
  bool flag(const char* name);
  // At most `most` bytes of it, as it can be shown on a terminal.
  std::string text(const char* name, std::size_t most);
  // The same of each of a list's first `most_items`.
  std::vector<std::string> texts(const char* name, std::size_t most_items, std::size_t most);
  // The members of `name`, an object. When they have been read, require() that they were good.
  JsonReader nested_object(const char* name);
  void require(const JsonReader& other) { is_good_ = is_good_ && other.is_good_; }

 private:
  const nlohmann::json* member(const char* name) const;

  const nlohmann::json* object_;  // null: none
  bool is_good_ = true;
};

}  // namespace launcher::control
