// The messages between the ddpruns of one command, over the channels that ssh provides: frames with a kind, the number
// of the host from which they come or to which they go, and bytes. Pure.
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
  // To the hosts.
  kTask = 1,      // Task: the receiver's number, and the hosts to which it must connect
  kNode,          // the arguments of the ddprun that the receiver runs
  kPlan,          // Plan, the same for every host
  kCredit,        // Amount: bytes of output that were read
  kOutputClosed,  // Amount: the stream has no reader any more
  kInput,         // bytes of standard input
  kInputEnd,      //
  kSignal,        // Amount: a signal for the receiver's ddprun
  kPing,          // to the next ddprun only, which answers
  kAskClock,      // Clock, with the sender's time
  // To the ddprun that the user started.
  kHello = 64,   // Hello
  kUnreachable,  // Ending: no connection to this host was made
  kLost,         // Ending: the connection to this host broke
  kOutput,       // Amount (stream), then bytes
  kOutputEnd,    // Amount (stream)
  kInputTaken,   // Amount: bytes
  kInputClosed,  //
  kEnded,        // Ending: how its ddprun ended
  kPong,         //
  kClock,        // Clock with both times
};

// Used instead of a host's number.
inline constexpr std::uint32_t kEveryHost = 0xffffffff;

struct Frame {
  Kind kind = Kind::kPing;
  std::uint32_t host = 0;
  std::string bytes{};
};

// Returns the frame as bytes.
std::string to_bytes(const Frame& frame);

// The content of a frame: the host and the bytes. Kinds are not checked, since hosts forward frames of kinds that they
// do not know.
struct FrameFormat {
  static std::optional<ContentSizes> sizes_of(std::uint8_t kind);
  static Frame frame(std::uint8_t kind, std::string_view content);
};
using FrameReader = FormatReader<FrameFormat>;

// How a host is reached: SshOptions in the form of a message.
struct SshSettings {
  std::string command{};
  std::uint32_t port = 0;  // 0: ssh's own choice
  std::string identity{};
  std::uint32_t timeout_ms = 0;
  std::uint32_t fanout = 0;
  std::string remote_ddprun{};
  std::string own_path{};  // the file of the ddprun that the user started

  bool operator==(const SshSettings&) const = default;
};

struct NamedHost {
  std::uint32_t number = 0;
  std::string name{};
  bool is_local = false;  // true: it needs no ssh

  bool operator==(const NamedHost&) const = default;
};

struct Task {
  std::uint32_t number = 0;
  SshSettings ssh{};
  std::vector<NamedHost> hosts{};  // the hosts that the receiver connects to

  bool operator==(const Task&) const = default;
};

struct Hello {
  std::string host_name{};
  std::string connection{};  // SSH_CONNECTION on the host
  std::uint32_t port = 0;    // a port that is reserved there for the store
  bool has_secrets = false;  // true: built with libsodium

  bool operator==(const Hello&) const = default;
};

// Data that all nodes of the job share.
struct Plan {
  std::vector<std::string> arguments{};    // the arguments of ddprun
  std::vector<std::string> program{};      // the program and its arguments
  std::vector<std::string> environment{};  // "NAME=value", which outrank those that the host has
  std::string folder{};
  bool needs_folder = true;
  std::string secret{};
  std::uint32_t window = 0;  // the bytes of a stream that a host may have under way
  std::uint32_t grace_ms = 0;
  bool keeps_lines = true;  // true: lines of different hosts must not mix
  bool is_check = false;    // true: no job is started, but other hosts must reach the reserved port

  bool operator==(const Plan&) const = default;
};

struct NodeArguments {
  std::vector<std::string> arguments{};
  bool reads_input = false;

  bool operator==(const NodeArguments&) const = default;
};

struct Ending {
  std::uint32_t status = 0;
  std::string text{};  // the reason, if ddprun did not end by itself

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

// Returns nothing when `bytes` are not a message of that kind.
template <typename Message>
std::optional<Message> decode(std::string_view bytes);
// Returns the number at the front of `bytes`, and removes it.
std::optional<std::uint32_t> take_amount(std::string_view& bytes);

}  // namespace launcher::remote
