// The small languages of single options and of what nodes and the system write. The first byte chooses.
#include "launcher/local/output/output_tail.h"
#include "launcher/local/output/prefix_template.h"
#include "launcher/local/processes/descendants.h"
#include "launcher/nodes/torchrun/static_messages.h"
#include "launcher/os/machine/gpu_information.h"
#include "launcher/os/machine/usable_cpus.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/shell_quote.h"
#include "launcher/plan/host_list.h"
#include "launcher/plan/job_nodes.h"
#include "launcher/plan/rank_assignment.h"
#include "launcher/plan/stream_selection.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace launcher;

// Whether it was not refused.
template <typename Function>
bool may_refuse(const Function& function) {
  try {
    function();
    return true;
  } catch (const LaunchError& error) {
    fuzz::require(*error.what() != '\0', "a refusal says why");
    return false;
  }
}

bool check_prefix(std::string_view text) {
  return may_refuse([&] {
    const PrefixTemplate prefix(text);
    (void)prefix.has_time();
    fuzz::require(prefix.expand({}, "host", "stdout", "time").size() <= text.size() * 8 + 32, "a prefix stays short");
  });
}

void check_torchruns_prefix(std::string_view text) {
  const PrefixTemplate prefix = PrefixTemplate::from_torchrun(text, "role");
  fuzz::require(prefix.expand({}, "host", "stdout", "").size() <= text.size(), "no field is longer than its name");
  if (text.find('$') == std::string_view::npos)
    fuzz::require(prefix.expand({}, "", "", "") == text, "what is no field is text");
}

// The bytes come at once and in pieces of as many bytes as the first one says.
void check_tail(std::string_view text) {
  OutputTail whole;
  whole.add(text);
  fuzz::require(whole.lines().size() <= OutputTail::kBytes + OutputTail::kLines, "a tail is short");
  if (text.empty() || text.size() > OutputTail::kBytes) return;
  const std::size_t piece = 1 + static_cast<unsigned char>(text.front());
  OutputTail cut;
  for (std::size_t at = 0; at < text.size(); at += piece) cut.add(text.substr(at, piece));
  fuzz::require(cut.lines() == whole.lines(), "the lines are the same however the output is read");
}

bool check_streams(std::string_view text) {
  const auto selection = StreamSelection::parse(text);
  if (selection) {
    for (const int local_rank : {0, 1, 11}) {
      const Streams streams = selection->of_rank(local_rank);
      fuzz::require(!selection->is_empty() || (!streams.out && !streams.err), "an empty selection selects nothing");
    }
  }
  if (const auto ranks = parse_rank_list(text)) {
    for (const int rank : *ranks) fuzz::require(rank >= 0, "ranks are not negative");
  }
  for (const std::string& part : parse_text_list(text)) fuzz::require(!part.empty(), "empty texts are left out");
  return selection.has_value();
}

bool check_hosts(std::string_view text) {
  return may_refuse([&] {
    const auto hosts = parse_host_list(text);
    fuzz::require(!hosts.empty(), "a list names a host");
    for (const HostSlots& host : hosts) {
      fuzz::require(host.slots >= 0 && !host.host.empty() && !host.host.starts_with('-'), "hosts have names and slots");
      may_refuse([&] {
        for (const HostSlots& left : select_hosts(hosts, host.host + ":0", ""))
          fuzz::require(left.slots == 1, "one slot was chosen");
      });
    }
  });
}

bool check_nodes(std::string_view text) {
  const auto info = parse_role_info(text);
  if (info) {
    fuzz::require(info->local_world_size > 0 && info->node >= 0, "a node brings ranks");
  }
  const auto ranks = parse_node_ranks(text);
  if (ranks) {
    fuzz::require(ranks->first_rank >= 0 && ranks->first_rank < ranks->world_size, "ranks are within the world");
  }
  const auto notice = parse_failure_notice(text);
  if (notice) fuzz::require(notice->node >= 0, "a node has a number");
  return info || ranks || notice;
}

bool check_system(std::string_view text) {
  const auto process = parse_process_stat(text);
  if (process) fuzz::require(process->pid > 0, "a process has a number");
  fuzz::require(cpus_from_cpu_max(text) >= 0, "no negative number of CPUs");
  const std::vector<std::string> gpus = {"GPU-aa11", "GPU-aa22", "GPU-bb33"};
  const std::string value(text);
  fuzz::require(visible_gpus(gpus, value.c_str()) <= static_cast<int>(text.size() / 2 + 1), "one device per entry");
  const std::string quoted = shell_quote(text);
  for (const char c : quoted)
    fuzz::require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "quoted words are one line");
  return process.has_value();
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  return {"0[{rank} {local_rank} {host} {stream} {time}] ",
          "0horovod",
          "0[${role_name}${local_rank}]: $rank $$",
          "4\x03\x1b[31mred\x1b[0m 10%\r20%\r\nlast",
          "0{{rank}",
          "13",
          "10:3,11:1",
          "10,3,,11",
          "2localhost:4,node7:8",
          "2[::1]:4,[fe80::1%eth0]",
          R"(3{"role": "default", "rank": 1, "local_world_size": 2})",
          "3[0, 4, 0, 4]",
          R"(3{"node": 1, "exit_status": 3, "text": "rank 1 failed"})",
          "4123 (sh) S 77 1 2 3 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 111 222",
          "4150000 100000\n",
          "40,GPU-aa,MIG-1",
          "4it's \"quoted\" $HOME\n"};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  Input input(bytes);
  const std::uint8_t kind = input.byte();
  const std::string_view text = input.rest();
  bool is_understood = false;
  switch (kind % 5) {  // '0' is 48
    case 3:
      is_understood = check_prefix(text);
      check_torchruns_prefix(text);
      break;
    case 4:
      is_understood = check_streams(text);
      break;
    case 0:
      is_understood = check_hosts(text);
      break;
    case 1:
      is_understood = check_nodes(text);
      break;
    default:
      is_understood = check_system(text);
      check_tail(text);
      break;
  }
  return is_understood ? Outcome::kAccepted : Outcome::kRefused;
}
