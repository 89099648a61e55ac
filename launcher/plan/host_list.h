// Parses lists such as "localhost:4,node7:8": hosts and the number of ranks of each, in the form of mpirun's and
// horovodrun's -H. Pure.
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
  int slots = 0;                    // 0: not given
  std::vector<std::string> gpus{};  // its GPUs to use; empty: all

  bool operator==(const HostSlots&) const = default;
};

// Parses the number of ranks of one host; nothing for other text.
std::optional<int> parse_slots(std::string_view text);
// Parses "host", "host:2", "user@host:2", "[address]", "[address]:2"; nothing for other text.
std::optional<HostSlots> parse_host(std::string_view text);

// Hosts in the order in which they were first named. If a host is named twice, its slots are added; without a number it
// has one slot.
class HostSlotCounts {
 public:
  void add(HostSlots entry);
  std::vector<HostSlots> take() { return std::move(hosts_); }

 private:
  std::vector<HostSlots> hosts_;
  std::unordered_map<std::string, std::size_t> places_;
};

// Parses a list into a HostSlotCounts. An IPv6 address is in brackets: [::1]:4. Throws LaunchError for an invalid list.
std::vector<HostSlots> parse_host_list(std::string_view text);

// Whether `host` is localhost or this machine, whose name is `own_name`. Either name may lack its domain.
bool is_this_machine(std::string_view host, std::string_view own_name);

// Parses the file of --hostfile: one host per line, in the formats of mpirun, horovodrun, deepspeed and MPICH's hydra:
// "host", "host:4", "host slots=4", "host slots=4 max_slots=8" (max-slots, too). `#` begins a comment. An IPv6 address
// needs no brackets unless it is followed by a colon and slots. If a host is named twice, its slots are added. Throws
// LaunchError, which names `file` and the line.
std::vector<HostSlots> parse_host_file(std::string_view text, const std::string& file);

// Reads and parses `file`. Throws LaunchError when it cannot be read, too.
std::vector<HostSlots> read_host_file(const std::string& file);

}  // namespace launcher
