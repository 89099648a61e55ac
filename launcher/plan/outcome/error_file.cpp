#include "launcher/plan/outcome/error_file.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "launcher/os/system/unique_fd.h"

namespace launcher {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxBytes = 1 << 20;

std::optional<double> number_in(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return std::nullopt;
  if (found->is_number()) return found->get<double>();
  if (!found->is_string()) return std::nullopt;
  const auto& text = found->get_ref<const std::string&>();  // torch writes the time as a string
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  return end != text.c_str() && *end == '\0' && std::isfinite(number) ? std::optional(number) : std::nullopt;
}

}  // namespace

std::optional<ErrorRecord> parse_error_record(std::string_view text) {
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  if (last == std::string_view::npos) return std::nullopt;
  text = text.substr(0, last + 1);

  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object() || !root.contains("message")) return ErrorRecord{std::string(text), std::nullopt};
  ErrorRecord record{.time = number_in(root, "timestamp")};
  const json& message = root["message"];
  if (message.is_string()) {
    record.message = message.get<std::string>();
  } else if (message.is_object()) {
    const auto inner = message.find("message");
    if (inner != message.end() && inner->is_string()) record.message = inner->get<std::string>();
    const auto extra = message.find("extraInfo");
    if (extra != message.end() && extra->is_object()) {
      if (const auto time = number_in(*extra, "timestamp")) record.time = time;
    }
  }
  if (record.message.empty()) record.message = std::string(text);
  return record;
}

std::optional<ErrorRecord> read_error_file(const std::string& path) {
  // Opened without blocking, because a worker may have put anything there, also a named pipe.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return std::nullopt;
  std::string text(kMaxBytes, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = ::read(file.get(), text.data() + size, text.size() - size);
    if (count <= 0) break;
    size += static_cast<std::size_t>(count);
  }
  text.resize(size);
  return parse_error_record(text);
}

}  // namespace launcher
