#include "launcher/local/processes/socket_owners.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "launcher/local/processes/descendants.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {
namespace {

std::string read_table(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Returns the port, the number after the last colon of "0100007F:C001".
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

// The kernel answers during the request. The timeout only makes sure that ddprun never waits forever.
constexpr timeval kKernelTimeout{.tv_sec = 1, .tv_usec = 0};
constexpr std::size_t kAnswerBytes = std::size_t{32} << 10;

// The condition "the remote port is `port`", as two comparisons. Each comparison needs a second word for the number.
// `yes` is the number of bytes to the next operation. `no` leads beyond the end of the program, which refuses the
// socket.
std::array<inet_diag_bc_op, 4> condition(std::uint16_t port) {
  constexpr unsigned char kStep = 2 * sizeof(inet_diag_bc_op);
  constexpr unsigned short kBytes = 4 * sizeof(inet_diag_bc_op);
  return {{{.code = INET_DIAG_BC_D_GE, .yes = kStep, .no = kBytes + sizeof(inet_diag_bc_op)},
           {.code = 0, .yes = 0, .no = port},
           {.code = INET_DIAG_BC_D_LE, .yes = kStep, .no = kBytes - kStep + sizeof(inet_diag_bc_op)},
           {.code = 0, .yes = 0, .no = port}}};
}

struct Request {
  nlmsghdr header{};
  inet_diag_req_v2 body{};
  nlattr attribute{};
  std::array<inet_diag_bc_op, 4> program{};
};
static_assert(sizeof(Request) ==
              sizeof(nlmsghdr) + sizeof(inet_diag_req_v2) + sizeof(nlattr) + 4 * sizeof(inet_diag_bc_op));

Request request(unsigned char family, std::uint16_t port) {
  Request request;
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.body.sdiag_family = family;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = ~0U;
  request.attribute.nla_type = INET_DIAG_REQ_BYTECODE;
  request.attribute.nla_len = sizeof request.attribute + sizeof request.program;
  request.program = condition(port);
  return request;
}

// Returns false when there is no valid answer.
bool read_answer(int fd, std::uint16_t port, PortsOfSockets& found) {
  alignas(nlmsghdr) std::array<char, kAnswerBytes> bytes;
  while (true) {
    const ssize_t count = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    auto left = static_cast<unsigned>(count);
    for (auto* header = reinterpret_cast<nlmsghdr*>(bytes.data()); NLMSG_OK(header, left);
         header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_type == NLMSG_DONE) return true;
      if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY || header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) {
        return false;
      }
      inet_diag_msg socket{};
      std::memcpy(&socket, NLMSG_DATA(header), sizeof socket);
      // The inode is 0 when no process has the socket any more.
      if (socket.idiag_inode != 0 && ntohs(socket.id.idiag_dport) == port) {
        found.emplace(socket.idiag_inode, ntohs(socket.id.idiag_sport));
      }
    }
  }
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

std::optional<PortsOfSockets> ask_for_sockets_to_port(std::uint16_t port) {
  const UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kKernelTimeout, sizeof kKernelTimeout) != 0) {
    return std::nullopt;
  }
  PortsOfSockets found;
  for (const int family : {AF_INET, AF_INET6}) {
    const Request asked = request(static_cast<unsigned char>(family), port);
    if (::send(fd.get(), &asked, sizeof asked, 0) != static_cast<ssize_t>(sizeof asked)) return std::nullopt;
    if (!read_answer(fd.get(), port, found)) return std::nullopt;
  }
  return found;
}

}  // namespace launcher
