// The messages between the launchers of a job: from each launcher to the coordinator, which is the launcher that hosts
// the store, and back. They are JSON. Everything that is received is checked: numbers are within bounds, and text can
// be shown on a terminal. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "launcher/plan/outcome/job_end.h"
#include "launcher/plan/rank_assignment.h"

namespace launcher::control {

// Launchers with different numbers cannot communicate.
inline constexpr int kProtocol = 5;
// A node that the coordinator is to give a number.
inline constexpr int kAnyNode = -1;

// A node introduces itself, with the options that must be equal on all nodes.
struct Hello {
  int protocol = kProtocol;
  std::string version{};
  std::string host{};
  int pid = 0;
  std::string launcher{};  // random: identifies the launcher's process
  int nnodes = 1;
  int min_nodes = 0;  // 0: the number of nodes is fixed
  int node_rank = kAnyNode;
  std::string run_id{};
  std::string backend{};
  int max_restarts = 0;
  int local_world_size = 1;
  std::string role{};
  // The node cannot start its ranks, and connects only to report that.
  std::optional<JoinFailure> start_failure = std::nullopt;
};
// The first messages on each connection, which do not belong to a session. The coordinator sends a number that was
// never used before. The node repeats it and adds its own number, which the coordinator repeats. So a recording of an
// earlier connection cannot be replayed. With a shared secret each end also proves that it knows the secret.
struct Challenge {
  std::string text{};
  int protocol = kProtocol;  // 0: a launcher that is older than protocol 5
};
// The node begins its session, or continues it after the number of bytes that it has received.
struct Answer {
  std::string challenge{};
  std::string repeated{};
  std::string proof{};    // "": it has no secret
  std::string session{};  // random
  std::uint64_t received = 0;
  bool is_new = true;  // nothing that the node has sent was acknowledged
  // Counts the node's connections, because an answer on an earlier connection may arrive late.
  int attempt = 0;
};
// The session continues. The coordinator has received `received` bytes of it.
struct Welcome {
  std::string repeated{};
  std::string proof{};
  std::uint64_t received = 0;
  std::chrono::milliseconds reconnect_after{1'000};  // the silence after which the node makes a new connection
};
// The job cannot begin, or it continues or has ended without this node. Status 0 means that the job has ended well.
struct Refusal {
  JoinFailure reason{};
};
// The node is ready for round `round`.
struct Ready {
  int round = 0;
};
// Text for the user: which nodes are missing, or arrived and left.
struct Waiting {
  std::string text{};
  bool has_begun = false;  // the job runs without this node, which waits for the next restart
};
// All nodes have arrived.
struct Start {
  int round = 0;
  NodePlace place{};
  int store_port = 0;
  int coordinator = 0;             // the number of the coordinator's node
  bool has_foreign_nodes = false;  // true when torchrun nodes take part
};
// A node leaves before all nodes have met. `is_final`: it will not return, so the others need not wait for it.
struct Leaving {
  JoinFailure reason{};
  bool is_final = false;
};
// The node begins to stop its ranks; `notice` is the reason.
struct Failed {
  int round = 0;
  FailureNotice notice{};
};
// The coordinator has received nothing from this node for too long, and continues without it.
struct NodeDropped {};
// The node has received nothing from the coordinator for too long, and closes the connection. With a final notice it
// ends.
struct CoordinatorSilent {
  int round = 0;
  FailureNotice notice{};
};
// Asks a node which failure it knows. With `stop_because` the node also stops its ranks for that reason.
struct FailureQuery {
  int round = 0;
  std::optional<FailureNotice> stop_because = std::nullopt;
};
struct Report {
  int round = 0;
  std::optional<FailureNotice> notice = std::nullopt;
  bool is_any_ending = false;  // a rank shows that it is about to fail
};
// This was the first failure of the job.
struct Verdict {
  int round = 0;
  FailureNotice notice{};
};
struct Acknowledged {
  int round = 0;
};
// The job was stopped, and this node's ranks have all ended. The status is 0, 85 (all saved), or 128 + the signal.
struct Stopped {
  int round = 0;
  int status = 0;
};
// All nodes have stopped their ranks. `status` is the exit status for all of them.
struct AllStopped {
  int round = 0;
  int status = 0;
};
struct Ended {
  int round = 0;
};
struct AllEnded {
  int round = 0;
};
// A message from one node to another or to all others, forwarded by the coordinator without interpretation. ASCII.
inline constexpr int kEveryNode = -1;
inline constexpr std::size_t kMaxWord = std::size_t{24} << 10;
struct Word {
  int round = 0;
  int from = 0;  // filled in by the coordinator
  int to = kEveryNode;
  std::string text{};
};
// Asks whether the other end is alive. The answer repeats `sent`, or has 0 if it was not asked for. An end that sends
// nothing for `timeout` is lost.
struct Ping {
  std::int64_t sent = 0;  // microseconds of the sender's steady clock
  std::chrono::milliseconds timeout{};
};
struct Pong {
  std::int64_t sent = 0;
  std::int64_t clock = 0;  // microseconds since 1970 at the node that answers
  std::chrono::milliseconds timeout{};
  std::int64_t steady = 0;  // microseconds of that node's steady clock; 0: it does not report it
};

using Message = std::variant<Hello, Challenge, Answer, Welcome, Refusal, Ready, Waiting, Start, Leaving, Failed,
                             CoordinatorSilent, NodeDropped, FailureQuery, Report, Verdict, Acknowledged, Stopped,
                             AllStopped, Ended, AllEnded, Word, Ping, Pong>;

// At most kMaxMessageBytes long.
std::string to_text(const Message& message);
// Returns nothing when the text is not what a launcher would send.
std::optional<Message> parse_message(std::string_view text);

}  // namespace launcher::control
