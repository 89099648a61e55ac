// What listens at a port where a store was expected, by the first bytes that it sent. Pure.
#pragma once

#include <string>
#include <string_view>

namespace launcher::store {

// "an SSH server (SSH-2.0-OpenSSH_9.2)"; "another program, which sent 0x12 0x34" where the bytes are of no known
// protocol. `bytes` are not empty.
std::string describe_service(std::string_view bytes);

}  // namespace launcher::store
