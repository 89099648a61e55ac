// "localhost:4,node7:8": hosts and how many ranks each takes, as mpirun's and horovodrun's -H has it. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace launcher {

struct HostSlots {
  std::string host;                 // "user@host" where ssh is to log in as somebody else
  int slots = 0;                    // 0: nothing was said
  std::vector<std::string> gpus{};  // which of its GPUs; empty: all

  bool operator==(const HostSlots&) const = default;
};

// A number of ranks that one host can have; nothing for other text.
std::optional<int> parse_slots(std::string_view text);
// "host", "host:2", "user@host:2", "[address]", "[address]:2"; nothing for any other text.
std::optional<HostSlots> parse_host(std::string_view text);

// Hosts in the order in which they were first named; of one that is named twice the slots add up (where none are given,
// it is one).
class HostTally {
 public:
  void add(HostSlots entry);
  std::vector<HostSlots> take() { return std::move(hosts_); }

 private:
  std::vector<HostSlots> hosts_;
  std::unordered_map<std::string, std::size_t> places_;
};

// Into a HostTally; an IPv6 address is in brackets: [::1]:4. Throws LaunchError for an invalid list.
std::vector<HostSlots> parse_host_list(std::string_view text);

// localhost, or the name of this machine, `own_name`; either of the two may leave its domain out.
bool is_this_machine(std::string_view host, std::string_view own_name);

// The file of --hostfile: one host per line, as mpirun, horovodrun, deepspeed and MPICH's hydra write it.
// Lines "host", "host:4", "host slots=4", "host slots=4 max_slots=8" (max-slots too); `#` begins a comment; an IPv6
// address may stand without brackets where no slots follow a colon. Of a host that is named twice the slots add up.
// Throws LaunchError, which names `file` and the line.
std::vector<HostSlots> parse_host_file(std::string_view text, const std::string& file);

// Reads `file`. Throws LaunchError when that is impossible too.
std::vector<HostSlots> read_host_file(const std::string& file);

}  // namespace launcher
