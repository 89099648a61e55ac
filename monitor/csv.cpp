#include "monitor/csv.h"

#include <cstddef>

namespace ddp {

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char byte : text) {
    quoted += byte;
    if (byte == '"') quoted += byte;
  }
  return quoted + "\"";
}

std::vector<std::string> csv_first_row(std::string_view content) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  for (size_t i = 0; i < content.size(); ++i) {
    const char byte = content[i];
    if (is_quoted) {
      const bool is_doubled = byte == '"' && i + 1 < content.size() && content[i + 1] == '"';
      if (is_doubled) ++i;
      if (byte == '"' && !is_doubled) {
        is_quoted = false;
      } else {
        fields.back() += byte;
      }
    } else if (byte == '"') {
      is_quoted = true;
    } else if (byte == ',') {
      fields.emplace_back();
    } else if (byte == '\n') {
      break;
    } else if (byte != '\r') {
      fields.back() += byte;
    }
  }
  return fields;
}

}  // namespace ddp
