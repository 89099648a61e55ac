#include "launcher/remote/ssh_command.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "launcher/os/system/captured_output.h"
#include "tests/support/catch.h"

namespace launcher::remote {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

SshSettings ssh() {
  return {.command = "ssh", .timeout_ms = 5000, .fanout = 16, .own_path = "/opt/ddprun"};
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

TEST_CASE("SshCommand: asks nothing and has the user's port, key and options") {
  SshSettings own = ssh();
  own.command = "  ssh  -F x ";
  own.port = 2222;
  own.identity = "a key";
  const auto words = ssh_command(own, "me@b");
  CHECK(words[0] == "ssh");
  CHECK(words[1] == "-F");
  for (const char* word : {"BatchMode=yes", "ConnectTimeout=5", "ServerAliveInterval=0", "2222", "a key", "-T"})
    CHECK(has(words, word));
  CHECK(words[words.size() - 2] == "me@b");
}

TEST_CASE("SshCommand: every shell makes the same of a program's name") {
  for (const std::string name : {"/opt/ddprun", "/a folder/dd'run\"$HOME`id`\\", "/t\xc3\xa4st/%s!*\n?x"}) {
    CAPTURE(name);
    SshSettings own = ssh();
    own.remote_ddprun = name;
    std::string line = ssh_command(own, "b").back();
    const std::string exec = "exec " + std::string("\"$(printf");
    if (const auto at = line.find(exec); at != std::string::npos) line.replace(at, 5, "echo ");
    for (const char* shell : {"sh", "bash", "zsh", "fish", "csh", "ksh"}) {
      const std::string file = "/bin/" + std::string(shell);
      if (line.find("echo ") == std::string::npos || ::access(file.c_str(), X_OK) != 0) continue;
      CAPTURE(shell);
      const auto printed = captured_output(file, {shell, "-c", line}, std::chrono::seconds(20));
      CHECK(printed == name + " --remote_agent\n");
    }
    CHECK(line.find_first_of("!\n") == std::string::npos);
  }
}

TEST_CASE("SshCommand: a greeting is found behind what a shell prints") {
  const std::string line = greeting("1.2");
  CHECK(find_greeting("", "1.2").kind == Greeting::Kind::kNone);
  CHECK(find_greeting("welcome\n" + line.substr(0, 12), "1.2").kind == Greeting::Kind::kNone);
  const Greeting same = find_greeting("welcome " + line + "rest", "1.2");
  CHECK(same.kind == Greeting::Kind::kSame);
  CHECK(same.end == 8 + line.size());
  const Greeting other = find_greeting(greeting("9\x1b[2J"), "1.2");
  CHECK(other.kind == Greeting::Kind::kOther);
  CHECK_THAT(other.version, StartsWith("9 "));
  CHECK(find_greeting(line.substr(0, line.size() - 1) + std::string(100, '1'), "1.2").kind == Greeting::Kind::kOther);
}

TEST_CASE("SshCommand: what ssh says is put in the user's words") {
  const auto said = [](int status, const char* text) { return explain({.status = status, .errors = text}, ssh()); };
  CHECK_THAT(said(255, "ssh: Could not resolve hostname b: Name or service not known\r\n"),
             StartsWith("unknown host (ssh: "));
  CHECK_THAT(said(255, "ssh: connect to host b port 22: Connection refused\r\n"),
             StartsWith("no ssh server listens there"));
  CHECK_THAT(said(255, "a banner\nroot@b: Permission denied (publickey).\r\n\n"),
             StartsWith("the ssh server there refuses a login without a password (root@b: Permission denied"));
  CHECK_THAT(said(255, "@ REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n"),
             StartsWith("its host key has changed"));
  CHECK_THAT(said(255, "No ED25519 host key is known for b\nHost key verification failed.\n"),
             StartsWith("its host key is not known"));
  CHECK_THAT(said(255, "ssh: connect to host b port 22: Connection timed out"), StartsWith("it does not answer"));
  CHECK_THAT(said(127, "sh: 1: ddprun: not found\n"), StartsWith("ddprun was not found there"));
  CHECK_THAT(said(126, ""), StartsWith("ddprun cannot be executed there"));
  CHECK_THAT(said(125, "ddprun: unknown option --remote_agent; see ddprun --help\n"),
             StartsWith("its ddprun is too old"));
  CHECK_THAT(said(255, "what\x1b[2J"), StartsWith("ssh failed (what [2J"));
  CHECK_THAT(said(3, ""), ContainsSubstring("status 3"));
  CHECK_THAT(explain({.signal = SIGKILL}, ssh()), StartsWith("ssh was killed by SIGKILL"));
  CHECK_THAT(explain({.is_late = true}, ssh()), StartsWith("it did not answer within 5 s"));
}

}  // namespace
}  // namespace launcher::remote
