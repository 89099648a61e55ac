#include "launcher/local/processes/socket_diagnosis.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "launcher/os/system/unique_fd.h"

namespace launcher {
namespace {

// The kernel answers while it is asked; this is only so that ddprun can never wait for it.
constexpr timeval kKernelPatience{.tv_sec = 1, .tv_usec = 0};
constexpr std::size_t kAnswerBytes = std::size_t{32} << 10;

// The condition "the other end's port is `port`": two comparisons of which each needs a second word for the number.
// yes: bytes to the next operation; no: beyond the end of the program, which refuses the socket.
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
  inet_diag_req_v2 question{};
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
  request.question.sdiag_family = family;
  request.question.sdiag_protocol = IPPROTO_TCP;
  request.question.idiag_states = ~0U;
  request.attribute.nla_type = INET_DIAG_REQ_BYTECODE;
  request.attribute.nla_len = sizeof request.attribute + sizeof request.program;
  request.program = condition(port);
  return request;
}

// False when the answer is none.
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
      // 0: no process has it any more.
      if (socket.idiag_inode != 0 && ntohs(socket.id.idiag_dport) == port) {
        found.emplace(socket.idiag_inode, ntohs(socket.id.idiag_sport));
      }
    }
  }
}

}  // namespace

std::optional<PortsOfSockets> ask_for_sockets_to_port(std::uint16_t port) {
  const UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kKernelPatience, sizeof kKernelPatience) != 0) {
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
