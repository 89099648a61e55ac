// The command that starts a ddprun on another host, and the meaning of its failures. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/remote/wire.h"

namespace launcher::remote {

// The argument that makes a ddprun the one on a remote host.
inline constexpr std::string_view kAgentArgument = "--remote_agent";

// ssh with options for no questions, no terminal, no forwarding and no shared connection. Its last word is the command
// to run, in a form for any shell of the user. The command contains no secret and nothing of the job.
std::vector<std::string> ssh_command(const SshSettings& ssh, const std::string& host);

// The first line of a ddprun that was started in this way. Text that a login shell prints before it is ignored.
std::string greeting(std::string_view version);

struct Greeting {
  enum class Kind { kNone, kSame, kOther };
  Kind kind = Kind::kNone;  // kNone: it has not arrived yet
  std::size_t end = 0;      // the position after it
  std::string version{};    // the version of another ddprun
};
Greeting find_greeting(std::string_view bytes, std::string_view own_version);

// How the command that should have made the connection ended.
struct SshEnd {
  int status = -1;  // -1: it did not exit by itself
  int signal = 0;
  bool is_late = false;  // it was killed because nothing arrived
  std::string errors{};  // what it wrote to standard error
};

// Returns an explanation for the user: "unknown host (ssh: Could not resolve hostname b: Name or service not known)".
std::string explain(const SshEnd& end, const SshSettings& ssh);

}  // namespace launcher::remote
