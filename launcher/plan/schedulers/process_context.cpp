#include "launcher/plan/schedulers/process_context.h"

#include <cstddef>
#include <fstream>

#include "launcher/os/system/host_name.h"

namespace launcher {
namespace {

constexpr std::size_t kLargestFile = 4 << 20;  // 16 hosts' names for each of 10,000 nodes

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string content(kLargestFile + 1, '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad() || content.size() > kLargestFile) return std::nullopt;
  return content;
}

}  // namespace

ProcessContext process_context() {
  return {.variable = ddp::environment_variable, .host_name = host_name(), .file = read_file};
}

}  // namespace launcher
