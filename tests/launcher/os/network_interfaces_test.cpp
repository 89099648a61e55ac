#include <string>
#include <vector>

#include "launcher/os/network/interfaces.h"
#include "launcher/os/system/launch_error.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;

NetworkInterface interface(std::string name, const std::vector<std::string>& addresses, bool is_loopback = false) {
  NetworkInterface made{.name = std::move(name), .is_loopback = is_loopback};
  for (const std::string& address : addresses) made.addresses.push_back(numeric_addresses(address, 0).front());
  return made;
}

const std::vector<NetworkInterface> kMachine = {
    interface("lo", {"127.0.0.1", "::1"}, true), interface("eth0", {"192.168.7.5", "2001:db8:7::5"}),
    interface("ib0", {"10.1.2.3"}), interface("docker0", {"172.17.0.1"}), interface("down", {})};

TEST_CASE("find_interface: an interface is meant by its name, an address of it, or a network with one") {
  CHECK(find_interface(kMachine, "ib0") == "ib0");
  CHECK(find_interface(kMachine, "192.168.7.5") == "eth0");
  CHECK(find_interface(kMachine, "10.0.0.0/8") == "ib0");
  CHECK(find_interface(kMachine, "10.1.2.0/30") == "ib0");
  CHECK(find_interface(kMachine, "2001:db8:7::/48") == "eth0");
  CHECK(find_interface(kMachine, "0.0.0.0/0") == "lo");
}

TEST_CASE("find_interface: what is none of this machine's is refused with what there is") {
  for (const std::string wanted : {"eth7", "10.1.2.4", "10.1.2.4/31x", "10.1.2.0/33", "11.0.0.0/8", "fe80::/10", ""}) {
    CAPTURE(wanted);
    CHECK_THROWS_WITH(find_interface(kMachine, wanted), ContainsSubstring("eth0 (192.168.7.5 2001:db8:7::5), ib0"));
  }
}

TEST_CASE("interface_to_choose: the one that reaches the others, where a program could take another one") {
  CHECK(interface_to_choose(kMachine, "10.1.2.3") == "ib0");
  CHECK(interface_to_choose(kMachine, "2001:db8:7::5") == "eth0");
  CHECK(interface_to_choose(kMachine, "127.0.0.1") == "");
  CHECK(interface_to_choose(kMachine, "10.9.9.9") == "");
  CHECK(interface_to_choose(kMachine, "") == "");
  CHECK(interface_to_choose({kMachine[0], kMachine[2], kMachine[4]}, "10.1.2.3") == "");
}

TEST_CASE("network_interfaces: this machine's loopback is there, with its address") {
  const auto interfaces = network_interfaces();
  CHECK(find_interface(interfaces, "127.0.0.1") == find_interface(interfaces, "127.0.0.0/8"));
  CHECK(interface_to_choose(interfaces, "127.0.0.1") == "");
}

}  // namespace
}  // namespace launcher
