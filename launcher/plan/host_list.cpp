#include "launcher/plan/host_list.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "launcher/plan/options.h"
#include "launcher/system/launch_error.h"

namespace launcher {
namespace {

std::optional<int> parse_slots(std::string_view text) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return slots >= 1 && slots <= Options::kMaxLocalRanks ? std::optional(slots) : std::nullopt;
}

// "host", "host:2", "[address]", "[address]:2".
std::optional<HostSlots> parse_host(std::string_view text) {
  std::string_view host = text;
  std::string_view rest;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    host = text.substr(1, close - 1);
    rest = text.substr(close + 1);
  } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    rest = text.substr(colon);
  }
  if (host.empty()) return std::nullopt;
  if (rest.empty()) return HostSlots{std::string(host), 1};
  const auto slots = rest.front() == ':' ? parse_slots(rest.substr(1)) : std::nullopt;
  if (!slots) return std::nullopt;
  return HostSlots{std::string(host), *slots};
}

bool are_equal_names(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

// Either of two names may leave its domain out.
bool is_this_machine(std::string_view host, std::string_view own_name) {
  if (host == "127.0.0.1" || host == "::1" || are_equal_names(host, "localhost")) return true;
  const std::string_view short_host = host.substr(0, host.find('.'));
  const std::string_view short_name = own_name.substr(0, own_name.find('.'));
  const bool have_both_domains = short_host.size() < host.size() && short_name.size() < own_name.size();
  return are_equal_names(have_both_domains ? host : short_host, have_both_domains ? own_name : short_name);
}

}  // namespace

std::vector<HostSlots> parse_host_list(std::string_view text) {
  std::vector<HostSlots> hosts;
  for (std::string_view left = text;;) {
    const std::size_t comma = left.find(',');
    const auto entry = parse_host(left.substr(0, comma));
    if (!entry) throw LaunchError("-H: expected HOST[:RANKS],..., got '" + std::string(text) + "'");
    const auto known =
        std::find_if(hosts.begin(), hosts.end(), [&](const HostSlots& other) { return other.host == entry->host; });
    if (known == hosts.end()) {
      hosts.push_back(*entry);
    } else {
      known->slots = std::min(known->slots + entry->slots, Options::kMaxLocalRanks);
    }
    if (comma == std::string_view::npos) return hosts;
    left.remove_prefix(comma + 1);
  }
}

int local_slots(const std::vector<HostSlots>& hosts, std::string_view own_name) {
  int slots = 0;
  for (const HostSlots& entry : hosts) {
    if (!is_this_machine(entry.host, own_name)) {
      throw LaunchError("-H: " + entry.host + " is not this machine (" + std::string(own_name) +
                        "); start ddprun on each node with --nnodes, --node_rank and --master_addr");
    }
    slots = std::min(slots + entry.slots, Options::kMaxLocalRanks);
  }
  return slots;
}

}  // namespace launcher
