#include "launcher/nodes/rendezvous/listen_choice.h"

#include <string>
#include <vector>

#include "launcher/os/network/connector.h"
#include "launcher/os/network/tcp_socket.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;
using Kind = ListenAt::Kind;

ListenChoice choose(const std::string& name, const std::string& means) {
  return choose_listening(name, numeric_addresses(means, 0));
}

TEST_CASE("ListenChoice: an address of this machine is the only one") {
  const ListenChoice choice = choose("127.0.0.1", "127.0.0.1");
  CHECK(choice.where.kind == Kind::kAddresses);
  REQUIRE(choice.where.addresses.size() == 1U);
  CHECK(host_in(choice.where.addresses.front()) == "127.0.0.1");
  CHECK(choice.note == "");
  CHECK(choose("localhost", "127.0.0.1").where.kind == Kind::kAddresses);
}

TEST_CASE("ListenChoice: an address of another machine means all addresses, and is said") {
  const ListenChoice choice = choose("gateway", "192.0.2.1");
  CHECK(choice.where.kind == Kind::kAnyAddress);
  CHECK_THAT(choice.note, ContainsSubstring("gateway (192.0.2.1) is not an address of this machine"));
}

TEST_CASE("ListenChoice: a machine that knows its own name as loopback listens where others can reach it") {
  const ListenChoice choice = choose("host0", "127.0.1.1");
  CHECK(choice.where.kind == Kind::kAnyAddress);
  CHECK_THAT(choice.note,
             ContainsSubstring("host0 is 127.0.1.1 on this machine, where other machines cannot reach it"));
}

TEST_CASE("ListenChoice: a name that means nothing here means all addresses") {
  CHECK(choose_listening("host0", {}).where.kind == Kind::kAnyAddress);
}

TEST_CASE("Listener: several addresses have one port") {
  EventLoop loop;
  ListenAt where{Kind::kAddresses, numeric_addresses("127.0.0.1", 0)};
  where.addresses.push_back(numeric_addresses("127.0.0.2", 0).front());
  std::vector<int> ready;
  const Listener listener(loop, where, 0, [&](int fd) { ready.push_back(fd); });
  CHECK(listener.host() == "127.0.0.1");
  CHECK_THROWS_AS(Listener(loop, where, listener.port(), [](int) {}), PortInUse);
  const Connector connector(loop, "127.0.0.2", listener.port(), [](UniqueFd) {});
  while (ready.empty()) loop.run_once();
}

}  // namespace
}  // namespace launcher
