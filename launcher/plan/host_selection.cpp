#include "launcher/plan/host_selection.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

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

  // `@` also stands between a user and a host.
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

// Slots that are left are GPUs, as deepspeed has it.
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

}  // namespace launcher
