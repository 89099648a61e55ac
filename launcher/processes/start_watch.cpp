#include "launcher/processes/start_watch.h"

#include <dirent.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "launcher/processes/descendants.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

constexpr auto kInterval = 50ms;
// Looking at all processes takes longer; it must stay a small part of the launcher's time.
constexpr int kRestPerLook = 20;

std::string read_table(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// True when `pid` has a descriptor of one of the sockets.
bool owns_any(pid_t pid, const std::set<std::uint64_t>& inodes) {
  constexpr std::string_view kSocket = "socket:[";
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()),
                                                    [](DIR* dir) { return ::closedir(dir); });
  if (!entries) return false;
  while (const dirent* entry = ::readdir(entries.get())) {
    std::array<char, 64> target{};
    const ssize_t length = ::readlinkat(::dirfd(entries.get()), entry->d_name, target.data(), target.size());
    if (length <= 0) continue;
    std::string_view name(target.data(), static_cast<std::size_t>(length));
    if (!name.starts_with(kSocket)) continue;
    name.remove_prefix(kSocket.size());
    std::uint64_t inode = 0;
    std::from_chars(name.data(), name.data() + name.size(), inode);
    if (inodes.contains(inode)) return true;
  }
  return false;
}

}  // namespace

std::set<std::uint64_t> sockets_to_port(std::string_view table, std::uint16_t port) {
  std::set<std::uint64_t> inodes;
  std::istringstream lines{std::string(table)};
  std::string line;
  std::getline(lines, line);  // the columns' names
  while (std::getline(lines, line)) {
    // sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...
    std::istringstream fields(line);
    std::string skipped;
    std::string remote;
    std::uint64_t inode = 0;
    fields >> skipped >> skipped >> remote;
    for (int i = 0; i < 6; ++i) fields >> skipped;
    if (!(fields >> inode) || inode == 0) continue;
    const std::size_t colon = remote.rfind(':');
    std::uint16_t number = 0;
    if (colon == std::string::npos ||
        std::from_chars(remote.data() + colon + 1, remote.data() + remote.size(), number, 16).ec != std::errc())
      continue;
    if (number == port) inodes.insert(inode);
  }
  return inodes;
}

StartWatch::StartWatch(EventLoop& loop, std::uint16_t port, std::chrono::milliseconds timeout,
                       RunningRanks running_ranks, OnLate on_late)
    : loop_(loop),
      port_(port),
      deadline_(EventLoop::Clock::now() + timeout),
      running_ranks_(std::move(running_ranks)),
      on_late_(std::move(on_late)) {
  timer_ = loop_.call_at(std::min(deadline_, EventLoop::Clock::now() + kInterval), [this] { look(); });
}

StartWatch::~StartWatch() {
  if (timer_) loop_.cancel(*timer_);
}

std::vector<int> StartWatch::missing() const {
  std::vector<int> ranks;
  for (const auto& [pid, rank] : running_ranks_()) {
    if (!seen_.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

void StartWatch::look() {
  timer_.reset();
  const auto begin = EventLoop::Clock::now();
  const bool is_last = begin >= deadline_;
  std::set<std::uint64_t> inodes = sockets_to_port(read_table("/proc/net/tcp"), port_);
  inodes.merge(sockets_to_port(read_table("/proc/net/tcp6"), port_));
  const std::map<pid_t, int> ranks = running_ranks_();
  for (const auto& [pid, rank] : ranks) {
    if (!inodes.empty() && !seen_.contains(rank) && owns_any(pid, inodes)) seen_.insert(rank);
  }
  std::vector<int> late = missing();
  if (late.empty()) return;
  if (!inodes.empty() && (is_last || begin >= next_family_look_)) {
    look_at_families(ranks, inodes);
    next_family_look_ = begin + (EventLoop::Clock::now() - begin) * kRestPerLook;
    late = missing();
  }
  if (late.empty()) return;
  if (is_last) {
    on_late_(std::move(late));
    return;
  }
  const auto now = EventLoop::Clock::now();
  timer_ = loop_.call_at(std::min(deadline_, now + kInterval), [this] { look(); });
}

// What a rank started may have the connection: a shell's child, say. Costs a look at every process of the machine.
void StartWatch::look_at_families(const std::map<pid_t, int>& ranks, const std::set<std::uint64_t>& inodes) {
  // Parents come before their children, so a process's rank is known before its children's.
  std::map<pid_t, int> rank_of = ranks;
  for (const ProcessIdentity& process : descendants_of(::getpid())) {
    const auto parent = rank_of.find(process.parent);
    if (parent == rank_of.end() || rank_of.contains(process.pid)) continue;
    const int rank = parent->second;
    rank_of.emplace(process.pid, rank);
    if (!seen_.contains(rank) && owns_any(process.pid, inodes)) seen_.insert(rank);
  }
}

}  // namespace launcher
