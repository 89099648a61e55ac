#include "launcher/remote/ssh_command.h"

#include <array>
#include <cctype>
#include <cstdio>
#include <sstream>
#include <utility>

#include "launcher/os/system/signals.h"
#include "launcher/os/system/utf8.h"

namespace launcher::remote {
namespace {

constexpr std::string_view kGreeting =
    "\x01"
    "ddprun-agent 1 ";
constexpr std::size_t kMaxVersion = 64;
constexpr std::size_t kMaxQuoted = 300;
constexpr int kSshErrorStatus = 255;

// Encodes a word for any shell: sh(1) decodes it. Characters that may have a meaning are octal numbers for printf, in
// single quotes.
std::string encode_for_any_shell(std::string_view word) {
  constexpr std::string_view kPlain = "_-+=./:,@";
  std::string text;
  bool is_plain = true;
  for (const char c : word) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != std::string_view::npos) {
      text += c;
      continue;
    }
    std::array<char, 5> escaped{};
    std::snprintf(escaped.data(), escaped.size(), "\\%03o", static_cast<unsigned>(static_cast<unsigned char>(c)));
    text += escaped.data();
    is_plain = false;
  }
  return is_plain ? text : "\"$(printf \"" + text + "\")\"";
}

std::string remote_line(const SshSettings& ssh) {
  const std::string agent(kAgentArgument);
  if (!ssh.remote_ddprun.empty()) return "exec " + encode_for_any_shell(ssh.remote_ddprun) + " " + agent;
  return "f=" + encode_for_any_shell(ssh.own_path) + "; if [ -x \"$f\" ]; then exec \"$f\" " + agent +
         "; else exec ddprun " + agent + "; fi";
}

// Returns the last line that is not blank.
std::string last_line(std::string_view text) {
  std::string last;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) last = line;
  }
  while (!last.empty() && (last.back() == '\r' || last.back() == ' ')) last.pop_back();
  return printable(beginning(last, kMaxQuoted));
}

// Messages of ssh(1) and their meaning. The first one that is found counts.
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kMeanings = {{
    {"Could not resolve hostname", "unknown host"},
    {"HOST IDENTIFICATION HAS CHANGED", "its host key has changed"},
    {"Host key verification failed", "its host key is not known"},
    {"Permission denied", "the ssh server there refuses a login without a password"},
    {"Too many authentication failures", "the ssh server there refuses a login without a password"},
    {"Connection refused", "no ssh server listens there"},
    {"timed out", "it does not answer"},
    {"No route to host", "there is no route to it"},
    {"Network is unreachable", "there is no route to it"},
    {"unknown option", "its ddprun is too old for this one"},
    {"Bad configuration option", "this ssh does not know one of the options"},
    {"Connection closed by", "the ssh server closed the connection"},
}};

std::string meaning(const SshEnd& end, const SshSettings& ssh) {
  if (end.is_late) return "it did not answer within " + std::to_string(ssh.timeout_ms / 1000) + " s";
  if (end.signal != 0) return ssh.command + " was killed by " + signal_name(end.signal);
  if (end.status == 127) return "ddprun was not found there; install it, or name it with --remote_ddprun";
  if (end.status == 126) return "ddprun cannot be executed there";
  for (const auto& [text, means] : kMeanings) {
    if (end.errors.find(text) != std::string::npos) return std::string(means);
  }
  if (end.status == kSshErrorStatus) {
    return end.errors.empty() ? "ssh reports no reason: ddprun was killed there, or the connection was cut"
                              : std::string("ssh failed");
  }
  return "ddprun did not start there (status " + std::to_string(end.status) + ")";
}

}  // namespace

std::vector<std::string> ssh_command(const SshSettings& ssh, const std::string& host) {
  std::vector<std::string> arguments;
  std::istringstream command(ssh.command);
  for (std::string word; command >> word;) arguments.push_back(word);
  const std::string seconds = std::to_string(std::max<std::uint32_t>(ssh.timeout_ms / 1000, 1));
  for (const std::string& option :
       {std::string("BatchMode=yes"), "ConnectTimeout=" + seconds, std::string("ClearAllForwardings=yes"),
        std::string("ForwardX11=no"), std::string("ControlMaster=no"),
        std::string("ServerAliveInterval=0")}) {  // the user's configuration may set a shorter interval than
                                                  // --ssh_timeout, which ddprun checks itself
    arguments.insert(arguments.end(), {"-o", option});
  }
  arguments.emplace_back("-T");
  if (ssh.port != 0) arguments.insert(arguments.end(), {"-p", std::to_string(ssh.port)});
  if (!ssh.identity.empty()) arguments.insert(arguments.end(), {"-i", ssh.identity});
  arguments.insert(arguments.end(), {host, "exec /bin/sh -c '" + remote_line(ssh) + "'"});
  return arguments;
}

std::string greeting(std::string_view version) {
  return std::string(kGreeting).append(version).append("\n");
}

Greeting find_greeting(std::string_view bytes, std::string_view own_version) {
  const std::size_t begin = bytes.find(kGreeting);
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = bytes.substr(begin + kGreeting.size());
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos && rest.size() < kMaxVersion) return {};
  const std::string_view version = rest.substr(0, std::min(end, kMaxVersion));
  if (version != own_version) return {Greeting::Kind::kOther, 0, printable(version)};
  return {Greeting::Kind::kSame, begin + kGreeting.size() + end + 1, ""};
}

std::string explain(const SshEnd& end, const SshSettings& ssh) {
  const std::string ssh_error = last_line(end.errors);
  return meaning(end, ssh) + (ssh_error.empty() ? "" : " (" + ssh_error + ")");
}

}  // namespace launcher::remote
