#include "monitor/csv.h"

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

std::vector<std::string> csv_row(std::string_view content, size_t& at) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  for (size_t& i = at; i < content.size(); ++i) {
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
      ++i;
      break;
    } else if (byte != '\r') {
      fields.back() += byte;
    }
  }
  return fields;
}

std::vector<std::string> csv_first_row(std::string_view content) {
  size_t at = 0;
  return csv_row(content, at);
}

}  // namespace ddp
