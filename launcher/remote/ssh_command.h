// The command that starts a ddprun on another host, and what its failure means. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/remote/wire.h"

namespace launcher::remote {

// What ddprun is told in order to be the one on a host.
inline constexpr std::string_view kAgentArgument = "--remote_agent";

// With ssh's options: no questions, no terminal, nothing forwarded, no connection for others to share. The program is
// the last word of it, as a line for whatever shell the user has there; nothing secret and nothing of the job is in it.
std::vector<std::string> ssh_command(const SshSettings& ssh, const std::string& host);

// The first line of a ddprun that was started so. What a login shell prints before it does not matter.
std::string greeting(std::string_view version);

struct Greeting {
  enum class Kind { kNone, kSame, kOther };
  Kind kind = Kind::kNone;  // kNone: not there yet
  std::size_t end = 0;      // after it
  std::string version{};    // of another ddprun
};
Greeting find_greeting(std::string_view bytes, std::string_view own_version);

// How the command ended that should have given us a connection.
struct SshEnd {
  int status = -1;  // -1: not on its own
  int signal = 0;
  bool is_late = false;  // ended by us, as nothing arrived
  std::string errors{};  // what it wrote to standard error
};

// In the user's words: "unknown host (ssh: Could not resolve hostname b: Name or service not known)".
std::string explain(const SshEnd& end, const SshSettings& ssh);

}  // namespace launcher::remote
