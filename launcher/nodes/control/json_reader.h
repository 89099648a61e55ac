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

  // True when all members that were read exist and are within their bounds. Others are returned as the least value, or
  // as "".
  bool is_good() const { return is_good_; }

  bool has(const char* name) const;
  std::int64_t number(const char* name, std::int64_t least, std::int64_t most);
  int integer(const char* name, int least, int most) { return static_cast<int>(number(name, least, most)); }
  bool flag(const char* name);
  // Returns at most `most` bytes of a text, in a form that a terminal can show.
  std::string text(const char* name, std::size_t most);
  // Returns the first `most_items` texts of a list in the same form.
  std::vector<std::string> texts(const char* name, std::size_t most_items, std::size_t most);
  // Reads the members of the object `name`. After that, pass its is_good() to require().
  JsonReader nested_object(const char* name);
  void require(const JsonReader& other) { is_good_ = is_good_ && other.is_good_; }

 private:
  const nlohmann::json* member(const char* name) const;

  const nlohmann::json* object_;  // null: there is no such object
  bool is_good_ = true;
};

}  // namespace launcher::control
