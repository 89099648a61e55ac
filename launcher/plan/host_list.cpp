#include "launcher/plan/host_list.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <sstream>

#include "launcher/os/system/file_bytes.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/utf8.h"
#include "launcher/plan/options.h"

namespace launcher {
namespace {

bool are_equal_names(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

// DNS allows 253 bytes; a user name may precede it.
constexpr std::size_t kMaxHostNameLength = 300;
// Characters that have another meaning on a command line or in another launcher's list.
constexpr std::string_view kInvalidHostCharacters = "*=/?;|&<>()\"'`";
// The most characters of an invalid list that a message quotes.
constexpr std::size_t kMaxQuotedBytes = 200;

// Excludes names that ssh could take for an option, and characters that a terminal interprets.
bool is_host_name(std::string_view host) {
  return !host.empty() && host.size() <= kMaxHostNameLength && !host.starts_with('-') && !host.starts_with('@') &&
         !host.ends_with('@') && std::all_of(host.begin(), host.end(), [](unsigned char c) {
           return c > ' ' && c != 0x7f && kInvalidHostCharacters.find(c) == std::string::npos;
         });
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

[[noreturn]] void refuse_entry(std::string_view entry, std::string_view list) {
  std::string text = "-H: expected HOST[:RANKS],..., such as node1:4,node2:4, got '" +
                     printable(beginning(list, kMaxQuotedBytes)) + (list.size() > kMaxQuotedBytes ? "...'" : "'");
  if (entry.empty()) {
    text += ": a host is missing next to a comma";
  } else if (entry.find_first_of(" \t") != std::string_view::npos) {
    text += ": remove the blanks";
  } else if (is_number(entry)) {
    text += ": a number alone is not a host; the ranks of a host follow a colon";
  } else if (entry.size() < list.size() && entry.size() <= kMaxQuotedBytes) {
    text += ": '" + printable(entry) + "' is invalid";
  }
  throw LaunchError(text);
}

constexpr std::size_t kMaxHostFileBytes = std::size_t{64} << 20;

// Returns 4 for "slots=4" and `name` "slots"; nothing for other words.
std::optional<int> slots_in(std::string_view word, std::string_view name) {
  if (!word.starts_with(name) || !word.substr(name.size()).starts_with('=')) return std::nullopt;
  return parse_slots(word.substr(name.size() + 1));
}

std::optional<HostSlots> parse_entry(std::istringstream words) {
  std::string word;
  words >> word;
  // A bare IPv6 address has more than one colon.
  const bool is_address = !word.starts_with('[') && std::count(word.begin(), word.end(), ':') > 1;
  const std::size_t at = word.rfind('@') + 1;  // is 0 without a user name
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

std::optional<int> parse_slots(std::string_view text) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return slots >= 1 && slots <= Options::kMaxLocalRanks ? std::optional(slots) : std::nullopt;
}

std::optional<HostSlots> parse_host(std::string_view text) {
  const std::size_t at = text.rfind('@');
  const std::string user(text.substr(0, at == std::string_view::npos ? 0 : at + 1));
  std::string_view host = text.substr(user.size());
  std::string_view rest;
  if (host.starts_with('[')) {
    const std::size_t close = host.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    rest = host.substr(close + 1);
    host = host.substr(1, close - 1);
  } else if (const std::size_t colon = host.find(':'); colon != std::string_view::npos) {
    rest = host.substr(colon);
    host = host.substr(0, colon);
  }
  if (host.empty() || !is_host_name(user + std::string(host))) return std::nullopt;
  if (rest.empty()) return HostSlots{user + std::string(host), 0};
  const auto slots = rest.front() == ':' ? parse_slots(rest.substr(1)) : std::nullopt;
  if (!slots) return std::nullopt;
  return HostSlots{user + std::string(host), *slots};
}

void HostSlotCounts::add(HostSlots entry) {
  const auto [place, is_new] = places_.try_emplace(entry.host, hosts_.size());
  if (is_new) {
    hosts_.push_back(std::move(entry));
    return;
  }
  HostSlots& known = hosts_[place->second];
  known.slots = std::min(std::max(known.slots, 1) + std::max(entry.slots, 1), Options::kMaxLocalRanks);
}

std::vector<HostSlots> parse_host_list(std::string_view text) {
  HostSlotCounts hosts;
  for (std::string_view left = text;;) {
    const std::size_t comma = left.find(',');
    auto entry = is_number(left.substr(0, comma)) ? std::nullopt : parse_host(left.substr(0, comma));
    if (!entry) refuse_entry(left.substr(0, comma), text);
    hosts.add(std::move(*entry));
    if (comma == std::string_view::npos) return hosts.take();
    left.remove_prefix(comma + 1);
  }
}

bool is_this_machine(std::string_view host, std::string_view own_name) {
  if (host == "127.0.0.1" || host == "::1" || are_equal_names(host, "localhost")) return true;
  const std::string_view short_host = host.substr(0, host.find('.'));
  const std::string_view short_name = own_name.substr(0, own_name.find('.'));
  const bool have_both_domains = short_host.size() < host.size() && short_name.size() < own_name.size();
  return are_equal_names(have_both_domains ? host : short_host, have_both_domains ? own_name : short_name);
}

std::vector<HostSlots> parse_host_file(std::string_view text, const std::string& file) {
  HostSlotCounts counts;
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
    counts.add(std::move(*entry));
  }
  std::vector<HostSlots> hosts = counts.take();
  if (hosts.empty()) throw LaunchError("--hostfile " + file + " contains no host");
  return hosts;
}

std::vector<HostSlots> read_host_file(const std::string& file) {
  if (::access(file.c_str(), F_OK) != 0 && file.find('/') == std::string::npos) {
    throw LaunchError("--hostfile " + file + ": " + std::strerror(errno) +
                      " (hosts themselves are named by -H HOST:N,...)");
  }
  return parse_host_file(file_bytes("--hostfile", file, kMaxHostFileBytes), file);
}

}  // namespace launcher
