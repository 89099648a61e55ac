#include "launcher/local/processes/socket_owners.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "launcher/os/system/unique_fd.h"
#include "tests/launcher/in_child.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Catch::Matchers::IsEmpty;

TEST_CASE("SocketsToPort: are found by the other end's port") {
  constexpr const char* kTable =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
      "   0: 0100007F:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 100 1 0 100 0 0 10 "
      "0\n"
      "   1: 0100007F:C001 0100007F:7530 01 00000000:00000000 00:00000000 00000000     0        0 101 1 0 20 4 30 10 "
      "-1\n"
      "   2: 0100007F:7530 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 102 1 0 20 4 30 10 "
      "-1\n"
      "   3: 0100007F:C002 0100007F:7530 06 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1\n"
      "   4: 0000000000000000FFFF00000100007F:C003 0000000000000000FFFF00000100007F:7530 01 0:0 0:0 0 0 0 103 1\n"
      "   garbage\n";
  CHECK(sockets_to_port(kTable, 30000) == PortsOfSockets{{101, 0xC001}, {103, 0xC003}});
  CHECK_THAT(sockets_to_port(kTable, 30001), IsEmpty());
  CHECK_THAT(sockets_to_port(std::string_view(), 30000), IsEmpty());
}

TEST_CASE("SocketsToPort: lines of another kind name no socket") {
  const std::string head = "header\n";
  const std::string tail = " 01 0:0 0:0 0 0 0 7 1\n";
  CHECK(sockets_to_port(head + "0: 0:FFFF 0:7530" + tail, 30000) == PortsOfSockets{{7, 0xFFFF}});
  for (const std::string& line :
       {std::string("0: 0:C001 0:17530") + tail, std::string("0: C001 7530") + tail, std::string("0: 0:C001 0:") + tail,
        std::string("0: 0: 0:7530") + tail, std::string("0: 0:x 0:7530") + tail,
        std::string("0: 0:C001 0:7530 01 0:0 0:0 0 0 0"), std::string("0: 0:C001 0:7530 01 0:0 0:0 0 0 0 x"),
        std::string("0: 0:C001 0:7530 01 0:0 0:0 0 0 0 99999999999999999999999"), std::string(100'000, ' '),
        std::string(1'000, '\n'), std::string(1'000, '\0')}) {
    CAPTURE(line.substr(0, 100));
    CHECK_THAT(sockets_to_port(head + line, 30000), IsEmpty());
  }
  CHECK_THAT(sockets_to_port("0: 0:C001 0:7530" + tail, 30000), IsEmpty());  // the columns' names are never a socket
}

// A connection to a listening socket of this process, over IPv4 or IPv6.
struct Connection {
  explicit Connection(int family) : listener(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_storage address{};
    auto* any = reinterpret_cast<sockaddr*>(&address);
    any->sa_family = static_cast<sa_family_t>(family);
    socklen_t size = sizeof(sockaddr_in);
    if (family == AF_INET) {
      reinterpret_cast<sockaddr_in*>(any)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
      reinterpret_cast<sockaddr_in6*>(any)->sin6_addr = in6addr_loopback;
      size = sizeof(sockaddr_in6);
    }
    if (::bind(listener.get(), any, size) != 0 || ::listen(listener.get(), 4) != 0) return;
    port = port_of(listener.get());
    client.reset(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ::getsockname(listener.get(), any, &size);
    if (::connect(client.get(), any, size) != 0) throw std::runtime_error("cannot connect");
    client_port = port_of(client.get());
  }
  static std::uint16_t port_of(int socket) {
    sockaddr_in6 address{};
    socklen_t size = sizeof address;
    ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin6_port);  // in the same place for both
  }
  UniqueFd listener;
  UniqueFd client;
  std::uint16_t port = 0;
  std::uint16_t client_port = 0;
};

TEST_CASE("SocketsOf: a process has those that it has descriptors of, in both protocols") {
  for (const int family : {AF_INET, AF_INET6}) {
    CAPTURE(family);
    Connection connection(family);
    if (connection.port == 0) continue;  // no IPv6 here
    const PortsOfSockets all = sockets_to_port(connection.port);
    REQUIRE(all.size() == 1);
    CHECK(all.begin()->second == connection.client_port);
    CHECK(sockets_of(::getpid(), all) == all);
    CHECK_THAT(sockets_of(::getppid(), all), IsEmpty());
    CHECK_THAT(sockets_of(-1, all), IsEmpty());
    CHECK_THAT(sockets_of(::getpid(), {}), IsEmpty());
    connection.client.reset();
    CHECK_THAT(sockets_of(::getpid(), all), IsEmpty());
  }
}

TEST_CASE("AskForSocketsToPort: the kernel names the sockets with that port at the other end, and no others") {
  for (const int family : {AF_INET, AF_INET6}) {
    CAPTURE(family);
    const Connection connection(family);
    const Connection other(family);
    if (connection.port == 0) continue;  // no IPv6 here
    const auto answer = ask_for_sockets_to_port(connection.port);
    if (!answer) SKIP("this kernel does not answer sock_diag");
    REQUIRE(answer->size() == 1);
    CHECK(answer->begin()->second == connection.client_port);
    CHECK(sockets_of(::getpid(), *answer) == *answer);
    const auto of_other = ask_for_sockets_to_port(other.port);
    REQUIRE(of_other);
    REQUIRE(of_other->size() == 1);
    CHECK(of_other->begin()->second == other.client_port);
  }
}

TEST_CASE("AskForSocketsToPort: all of many sockets are in the answer") {
  constexpr int kMany = 1000;  // more than fit in one message
  const Connection first(AF_INET);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  REQUIRE(::getsockname(first.listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  REQUIRE(::listen(first.listener.get(), kMany) == 0);
  std::vector<UniqueFd> clients;
  for (int i = 0; i < kMany; ++i) {
    const UniqueFd& client = clients.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  }
  const auto answer = ask_for_sockets_to_port(first.port);
  if (!answer) SKIP("this kernel does not answer sock_diag");
  CHECK(answer->size() == kMany + 1);
  CHECK(sockets_of(::getpid(), *answer) == *answer);
}

TEST_CASE("OwnersOfConnections: are the processes below this one, not this one itself") {
  CHECK(in_child([] {
          Connection own(AF_INET);
          std::string text = owners_of_connections(own.port).empty() ? "none, " : "some, ";
          const Pipe ready = make_pipe();
          const pid_t child = ::fork();
          if (child == 0) {
            [[maybe_unused]] const ssize_t written = ::write(ready.writer.get(), "", 1);
            while (true) ::pause();
          }
          char byte = 0;
          [[maybe_unused]] const ssize_t count = ::read(ready.reader.get(), &byte, 1);
          const auto owners = owners_of_connections(own.port);  // it has inherited the socket
          text += owners == std::map<std::uint16_t, pid_t>{{own.client_port, child}} ? "the child" : "others";
          ::kill(child, SIGKILL);
          ::waitpid(child, nullptr, 0);
          return text;
        }) == "none, the child");
}

}  // namespace
}  // namespace launcher
