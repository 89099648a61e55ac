// The inputs from which schedulers are detected: variables, this host's name, files. It is a value, so that tests can
// provide their own.
#pragma once

#include <cstddef>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include "base/schedulers/launcher_variables.h"
#include "launcher/os/system/host_name.h"

namespace launcher {

struct ProcessContext {
  ddp::VariableLookup variable{};
  std::string host_name{};
  // Returns the content of a file; nothing when it cannot be read or is larger than any file that schedulers write.
  std::function<std::optional<std::string>(const std::string& path)> file{};
};

inline constexpr std::size_t kMaxFileBytes = 4 << 20;  // 16 hosts' names for each of 10,000 nodes

inline std::optional<std::string> read_scheduler_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string content(kMaxFileBytes + 1, '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad() || content.size() > kMaxFileBytes) return std::nullopt;
  return content;
}

inline ProcessContext process_context() {
  return {.variable = ddp::environment_variable, .host_name = host_name(), .file = read_scheduler_file};
}

}  // namespace launcher
