#include "launcher/processes/socket_owners.h"

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

}  // namespace
}  // namespace launcher
