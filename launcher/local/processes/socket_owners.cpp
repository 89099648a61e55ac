#include "launcher/local/processes/socket_owners.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "launcher/local/processes/descendants.h"
#include "launcher/local/processes/socket_diagnosis.h"

namespace launcher {
namespace {

std::string read_table(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The number behind the last colon of "0100007F:C001".
std::optional<std::uint16_t> port_of_address(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(address.data() + colon + 1, address.data() + address.size(), port, 16);
  return error == std::errc() ? std::optional(port) : std::nullopt;
}

std::vector<std::string_view> split_fields(std::string_view line, std::size_t count) {
  std::vector<std::string_view> fields;
  while (fields.size() < count) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (line.empty()) break;
    fields.push_back(line.substr(0, line.find(' ')));
    line.remove_prefix(fields.back().size());
  }
  return fields;
}

}  // namespace

PortsOfSockets sockets_to_port(std::string_view table, std::uint16_t port) {
  constexpr std::size_t kFields = 10;  // sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...
  PortsOfSockets found;
  table.remove_prefix(std::min(table.find('\n'), table.size()));  // the columns' names
  while (!table.empty()) {
    table.remove_prefix(1);
    const std::string_view line = table.substr(0, table.find('\n'));
    table.remove_prefix(line.size());
    const std::vector<std::string_view> fields = split_fields(line, kFields);
    if (fields.size() < kFields || port_of_address(fields[2]) != port) continue;
    std::uint64_t inode = 0;
    std::from_chars(fields[9].data(), fields[9].data() + fields[9].size(), inode);
    const auto own = port_of_address(fields[1]);
    if (inode != 0 && own) found.emplace(inode, *own);  // 0: no process has it any more
  }
  return found;
}

PortsOfSockets sockets_to_port(std::uint16_t port) {
  if (auto answer = ask_for_sockets_to_port(port)) return *answer;
  PortsOfSockets found = sockets_to_port(read_table("/proc/net/tcp"), port);
  found.merge(sockets_to_port(read_table("/proc/net/tcp6"), port));
  return found;
}

PortsOfSockets sockets_of(pid_t pid, const PortsOfSockets& sockets) {
  constexpr std::string_view kSocket = "socket:[";
  PortsOfSockets found;
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()),
                                                    [](DIR* dir) { return ::closedir(dir); });
  if (!entries) return found;
  while (const dirent* entry = ::readdir(entries.get())) {
    std::array<char, 64> target{};
    const ssize_t length = ::readlinkat(::dirfd(entries.get()), entry->d_name, target.data(), target.size());
    if (length <= 0) continue;
    std::string_view name(target.data(), static_cast<std::size_t>(length));
    if (!name.starts_with(kSocket)) continue;
    name.remove_prefix(kSocket.size());
    std::uint64_t inode = 0;
    std::from_chars(name.data(), name.data() + name.size(), inode);
    if (const auto socket = sockets.find(inode); socket != sockets.end()) found.insert(*socket);
  }
  return found;
}

std::map<std::uint16_t, pid_t> owners_of_connections(std::uint16_t port) {
  std::map<std::uint16_t, pid_t> owners;
  const PortsOfSockets sockets = sockets_to_port(port);
  for (const ProcessIdentity& process : descendants_of(::getpid())) {
    for (const auto& [inode, own_port] : sockets_of(process.pid, sockets)) owners.emplace(own_port, process.pid);
  }
  return owners;
}

}  // namespace launcher
