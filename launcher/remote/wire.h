// What the ddpruns of one command say to each other over the channels that ssh gives them: frames of a kind, the number
// of the host that they come from or go to, and bytes. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/system/frames.h"

namespace launcher::remote {

// Nanoseconds since 1970.
inline std::uint64_t wall_clock_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

enum class Kind : std::uint8_t {
  // Towards the hosts.
  kTask = 1,      // Task: who the receiver is, and which hosts it is to reach
  kNode,          // the arguments of its own ddprun, of which the receiver runs one
  kPlan,          // Plan, for every host
  kCredit,        // Amount: bytes of output that were taken
  kOutputClosed,  // Amount: the stream has no reader any more
  kInput,         // bytes of standard input
  kInputEnd,      //
  kSignal,        // Amount: for the receiver's ddprun
  kPing,          // to the next one only, which answers
  kAskClock,      // Clock with the sender's time
  // Towards the one that the user started.
  kHello = 64,   // Hello
  kUnreachable,  // Ending: no connection to this host was made
  kLost,         // Ending: the connection to this host broke
  kOutput,       // Amount (stream), then bytes
  kOutputEnd,    // Amount (stream)
  kInputTaken,   // Amount: bytes
  kInputClosed,  //
  kEnded,        // Ending: of its ddprun
  kPong,         //
  kClock,        // Clock with both times
};

// Instead of a host's number.
inline constexpr std::uint32_t kEveryHost = 0xffffffff;

struct Frame {
  Kind kind = Kind::kPing;
  std::uint32_t host = 0;
  std::string bytes{};
};

// The frame as it is sent.
std::string to_bytes(const Frame& frame);

// The content of a frame: the host, and the bytes. Their kinds are not checked: hosts pass on what they do not know.
struct FrameFormat {
  static std::optional<ContentSizes> sizes_of(std::uint8_t kind);
  static Frame frame(std::uint8_t kind, std::string_view content);
};
using FrameReader = FormatReader<FrameFormat>;

// How a host is reached: SshOptions as they travel.
struct SshSettings {
  std::string command{};
  std::uint32_t port = 0;  // 0: ssh's own choice
  std::string identity{};
  std::uint32_t timeout_ms = 0;
  std::uint32_t fanout = 0;
  std::string remote_ddprun{};
  std::string own_path{};  // of the ddprun that the user started

  bool operator==(const SshSettings&) const = default;
};

struct NamedHost {
  std::uint32_t number = 0;
  std::string name{};
  bool is_local = false;  // needs no ssh

  bool operator==(const NamedHost&) const = default;
};

struct Task {
  std::uint32_t number = 0;
  SshSettings ssh{};
  std::vector<NamedHost> hosts{};  // below the receiver

  bool operator==(const Task&) const = default;
};

struct Hello {
  std::string host_name{};
  std::string connection{};  // SSH_CONNECTION there
  std::uint32_t port = 0;    // kept free there, for the store
  bool has_secrets = false;  // was built with libsodium

  bool operator==(const Hello&) const = default;
};

// What all nodes of the job share.
struct Plan {
  std::vector<std::string> arguments{};    // of ddprun
  std::vector<std::string> program{};      // and its arguments
  std::vector<std::string> environment{};  // "NAME=value", which outrank those that the host has
  std::string folder{};
  bool needs_folder = true;
  std::string secret{};
  std::uint32_t window = 0;  // bytes of a stream that a host may have under way
  std::uint32_t grace_ms = 0;
  bool keeps_lines = true;  // of different hosts apart
  bool is_check = false;    // nothing is to be started, but others are to reach the kept port

  bool operator==(const Plan&) const = default;
};

struct NodeArguments {
  std::vector<std::string> arguments{};
  bool reads_input = false;

  bool operator==(const NodeArguments&) const = default;
};

struct Ending {
  std::uint32_t status = 0;
  std::string text{};  // why, where it was not ddprun itself that ended

  bool operator==(const Ending&) const = default;
};

struct Clock {
  std::uint64_t asked_ns = 0;
  std::uint64_t own_ns = 0;  // since 1970

  bool operator==(const Clock&) const = default;
};

std::string encode(const Task& task);
std::string encode(const Hello& hello);
std::string encode(const Plan& plan);
std::string encode(const NodeArguments& arguments);
std::string encode(const Ending& ending);
std::string encode(const Clock& clock);
std::string encode_amount(std::uint32_t amount);

// Nothing when `bytes` are not a message of that kind.
template <typename Message>
std::optional<Message> decode(std::string_view bytes);
// The number in front; `bytes` is what follows it afterwards.
std::optional<std::uint32_t> take_amount(std::string_view& bytes);

}  // namespace launcher::remote
