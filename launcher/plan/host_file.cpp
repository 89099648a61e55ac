#include "launcher/plan/host_file.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include "launcher/os/system/file_bytes.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

constexpr std::size_t kMostFileBytes = std::size_t{64} << 20;

// "slots=4" of `name`; nothing when `word` is not that, or no number follows.
std::optional<int> slots_in(std::string_view word, std::string_view name) {
  if (!word.starts_with(name) || !word.substr(name.size()).starts_with('=')) return std::nullopt;
  return parse_slots(word.substr(name.size() + 1));
}

std::optional<HostSlots> parse_entry(std::istringstream words) {
  std::string word;
  words >> word;
  // A bare IPv6 address has more than one colon.
  const bool is_address = !word.starts_with('[') && std::count(word.begin(), word.end(), ':') > 1;
  const std::size_t at = word.rfind('@') + 1;  // 0 when there is none
  auto entry = parse_host(is_address ? word.substr(0, at) + "[" + word.substr(at) + "]" : word);
  int most = 0;
  while (entry && words >> word) {
    const auto slots = slots_in(word, "slots");
    auto limit = slots_in(word, "max_slots");
    if (!limit) limit = slots_in(word, "max-slots");
    if (!slots && !limit) return std::nullopt;
    if (slots) entry->slots = *slots;
    if (limit) most = *limit;
  }
  if (entry && most > 0 && entry->slots > most) return std::nullopt;
  return entry;
}

}  // namespace

std::vector<HostSlots> parse_host_file(std::string_view text, const std::string& file) {
  HostTally tally;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    line.erase(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t\r\f\v") == std::string::npos) continue;
    auto entry = parse_entry(std::istringstream(line));
    if (!entry) {
      throw LaunchError("--hostfile " + file + ", line " + std::to_string(number) +
                        ": expected HOST [slots=N] [max_slots=N] or HOST:N, got '" + printable(line) + "'");
    }
    tally.add(std::move(*entry));
  }
  std::vector<HostSlots> hosts = tally.take();
  if (hosts.empty()) throw LaunchError("--hostfile " + file + " names no host");
  return hosts;
}

std::vector<HostSlots> read_host_file(const std::string& file) {
  return parse_host_file(file_bytes("--hostfile", file, kMostFileBytes), file);
}

}  // namespace launcher
