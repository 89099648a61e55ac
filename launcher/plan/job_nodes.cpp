#include "launcher/plan/job_nodes.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "launcher/os/network/address.h"
#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/host_name.h"
#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

struct HostCapacity {
  JobNode node;
  int slots = 0;  // 0: not given
};

std::vector<HostCapacity> capacities_of(std::vector<HostSlots> hosts, const IsLocal& is_local) {
  std::vector<HostCapacity> capacities;
  std::optional<std::size_t> own_index;
  for (HostSlots& host : hosts) {
    const bool is_here = is_local(host.host);
    if (!is_here || !own_index) {
      if (is_here) own_index = capacities.size();
      capacities.push_back(
          {{.host = std::move(host.host), .is_local = is_here, .gpus = std::move(host.gpus)}, host.slots});
      continue;
    }
    HostCapacity& own = capacities[*own_index];
    own.slots = std::min(std::max(own.slots, 1) + std::max(host.slots, 1), Options::kMaxLocalRanks);
    own.node.gpus.insert(own.node.gpus.end(), host.gpus.begin(), host.gpus.end());
  }
  return capacities;
}

std::string ranks_text(int count) {
  return std::to_string(count) + (count == 1 ? " rank" : " ranks");
}

void fill_slots(std::vector<HostCapacity>& capacities, int ranks) {
  int left = ranks;
  for (HostCapacity& capacity : capacities) {
    capacity.node.ranks = std::min(left, std::max(capacity.slots, 1));
    left -= capacity.node.ranks;
  }
  if (left > 0) {
    throw LaunchError("the hosts of -H or --hostfile have slots for " + std::to_string(ranks - left) + " of " +
                      ranks_text(ranks) + ": write HOST:SLOTS (a host without a number has 1 slot), fewer ranks, or " +
                      "--nproc_per_node N for N ranks on each host");
  }
}

void assign_to_each(std::vector<HostCapacity>& capacities, int ranks) {
  for (HostCapacity& capacity : capacities) {
    if (capacity.slots > 0 && ranks > capacity.slots) {
      throw LaunchError("host " + capacity.node.host + " has slots for " + std::to_string(capacity.slots) +
                        ", not for " + ranks_text(ranks));
    }
    capacity.node.ranks = ranks;
  }
}

// One of the parts between `@`.
struct NamedSlots {
  std::string host;
  std::vector<int> slots;  // empty: all
};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

class Selection {
 public:
  Selection(std::string option, const std::string& text, const std::vector<HostSlots>& hosts)
      : option_(std::move(option)), text_(text), hosts_(hosts) {}

  // The `@` separates parts, but also a user from a host.
  std::vector<NamedSlots> parse() const {
    std::vector<NamedSlots> named;
    std::string user;
    for (const std::string_view part : split(text_, '@')) {
      const std::string whole = user + std::string(part);
      const std::size_t colon = is_known(whole) ? std::string::npos : whole.rfind(':');
      const std::string host = whole.substr(0, colon);
      if (!is_known(host)) {
        if (colon != std::string::npos || !user.empty() || !is_user(host)) refuse("there is no host '" + host + "'");
        user = host + "@";
        continue;
      }
      user.clear();
      named.push_back({host, {}});
      if (colon != std::string::npos) named.back().slots = parse_numbers(host, whole.substr(colon + 1));
    }
    if (!user.empty()) refuse("there is no host '" + user.substr(0, user.size() - 1) + "'");
    return named;
  }

 private:
  const HostSlots* find(const std::string& host) const {
    const auto found = std::find_if(hosts_.begin(), hosts_.end(), [&](const HostSlots& e) { return e.host == host; });
    return found == hosts_.end() ? nullptr : &*found;
  }
  bool is_known(const std::string& host) const { return find(host) != nullptr; }
  bool is_user(const std::string& name) const {
    return std::any_of(hosts_.begin(), hosts_.end(),
                       [&](const HostSlots& entry) { return entry.host.starts_with(name + "@"); });
  }

  std::vector<int> parse_numbers(const std::string& host, std::string_view text) const {
    std::vector<int> slots;
    const int most = std::max(find(host)->slots, 1);
    for (const std::string_view word : split(text, ',')) {
      int slot = -1;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), slot);
      if (error != std::errc() || end != word.data() + word.size() || slot < 0 || slot >= most) {
        refuse("host " + host + " has the slots 0 to " + std::to_string(most - 1) + ", not '" + std::string(word) +
               "'");
      }
      slots.push_back(slot);
    }
    std::sort(slots.begin(), slots.end());
    slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
    return slots;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw LaunchError(option_ + " " + text_ + ": " + why + "; expected HOST[:SLOT,...]@...");
  }

  std::string option_;
  const std::string& text_;
  const std::vector<HostSlots>& hosts_;
};

// The remaining slots are GPUs, as in deepspeed.
void keep(HostSlots& host, const std::vector<int>& named, bool are_kept) {
  std::vector<std::string> gpus;
  for (int slot = 0; slot < std::max(host.slots, 1); ++slot) {
    const bool is_named = std::binary_search(named.begin(), named.end(), slot);
    if (is_named == are_kept) gpus.push_back(std::to_string(slot));
  }
  host.slots = static_cast<int>(gpus.size());
  host.gpus = std::move(gpus);
}

}  // namespace

std::vector<HostSlots> select_hosts(std::vector<HostSlots> hosts, const std::string& include,
                                    const std::string& exclude) {
  if (include.empty() && exclude.empty()) return hosts;
  const bool includes = !include.empty();
  const std::string option = includes ? "--include" : "--exclude";
  const std::vector<NamedSlots> named = Selection(option, includes ? include : exclude, hosts).parse();
  std::vector<HostSlots> left;
  for (HostSlots& host : hosts) {
    const auto found =
        std::find_if(named.begin(), named.end(), [&](const NamedSlots& entry) { return entry.host == host.host; });
    const bool is_named = found != named.end();
    if (is_named && !found->slots.empty()) {
      keep(host, found->slots, includes);
      if (host.slots > 0) left.push_back(std::move(host));
    } else if (is_named == includes) {
      left.push_back(std::move(host));
    }
  }
  if (left.empty()) throw LaunchError(option + " " + (includes ? include : exclude) + " leaves no host");
  return left;
}

std::vector<JobNode> plan_nodes(std::vector<HostSlots> hosts, const Options& options, const IsLocal& is_local) {
  std::vector<HostCapacity> capacities = capacities_of(std::move(hosts), is_local);
  if (options.nproc_per_node == Options::kUnset) {
    for (HostCapacity& capacity : capacities) capacity.node.ranks = std::max(capacity.slots, 1);
  } else if (options.nproc_per_node < 0 || !options.counts_all_ranks) {
    assign_to_each(capacities, options.nproc_per_node);
  } else {
    fill_slots(capacities, options.nproc_per_node);
  }
  std::vector<JobNode> nodes;
  for (HostCapacity& capacity : capacities) {
    if (capacity.node.ranks == 0) continue;
    // If only some GPUs of a host were named, its ranks use the first of them.
    const auto ranks = static_cast<std::size_t>(std::max(capacity.node.ranks, 0));
    if (capacity.node.ranks > 0 && capacity.node.gpus.size() > ranks) capacity.node.gpus.resize(ranks);
    nodes.push_back(std::move(capacity.node));
  }
  return nodes;
}

std::vector<JobNode> job_nodes(const Options& options) {
  if (options.hosts.empty() && options.host_file.empty()) return {};
  std::vector<HostSlots> hosts =
      options.hosts.empty() ? read_host_file(options.host_file) : parse_host_list(options.hosts);
  const std::string own_name = host_name();
  return plan_nodes(
      select_hosts(std::move(hosts), options.include, options.exclude), options, [&own_name](const std::string& host) {
        const auto addresses = numeric_addresses(host, 0);
        return is_this_machine(host, own_name) || std::any_of(addresses.begin(), addresses.end(), is_own_address);
      });
}

}  // namespace launcher
