#include "launcher/nodes/rendezvous/coordinator_links.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/host_name.h"
#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;
using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::system_clock;

std::int64_t to_microseconds(EventLoop::Clock::time_point time) {
  return duration_cast<microseconds>(time.time_since_epoch()).count();
}

// Limits for unknown peers: they must not flood the job's output, nor keep their connections.
constexpr int kMaxNamedUnknownPeers = 8;
constexpr auto kUnknownPeerTimeout = 5s;
// The limit for a peer that has begun a session but not introduced itself: it may be cut off in between.
constexpr auto kUnintroducedPeerTimeout = 30s;
// The number of unknown peers in addition to the nodes of the job. If there are more, a peer that has not introduced
// itself within kIntroduction is dropped.
constexpr std::size_t kMaxUnknownPeers = 256;
constexpr auto kIntroduction = 500ms;
// How long a peer that was given up may still connect to receive the decision.
constexpr auto kDroppedPeerTimeout = 60s;
// The pause before the next accept() when there is no room for more peers.
constexpr auto kAcceptPause = 100ms;
// After this process was suspended, messages from that time are read within this time.
constexpr auto kDelayMemory = 5s;

std::string in_seconds(EventLoop::Clock::duration time) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s", std::chrono::duration<double>(time).count());
  return text.data();
}

}  // namespace

CoordinatorLinks::CoordinatorLinks(EventLoop& loop, Settings settings, Callbacks callbacks)
    : loop_(loop),
      settings_(std::move(settings)),
      callbacks_(std::move(callbacks)),
      listener_(loop, settings_.where, 0, [this](int listener) { accept_all(listener); }),
      next_ping_(Clock::now() + settings_.ping_interval) {
  timer_.start_at(next_ping_, [this] { on_tick(); });
}

UniqueFd CoordinatorLinks::connect_locally() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    throw LaunchError(std::string("cannot create a pair of sockets: ") + std::strerror(errno));
  }
  UniqueFd other(ends[1]);
  add(UniqueFd(ends[0]));
  return other;
}

void CoordinatorLinks::accept_all(int listener) {
  for (int i = 0; i < kMaxConsecutiveAccepts; ++i) {
    if (!has_room()) return pause_accepting();
    Accepted accepted = accept_connection(listener);
    if (accepted.is_out_of_resources) pause_accepting();
    if (!accepted.fd) return;
    set_connection_options(accepted.fd.get());
    Peer& peer = peers_.at(add(std::move(accepted.fd)));
    peer.challenge = control::new_challenge();
    peer.link->send(control::Challenge{peer.challenge});
  }
}

// Returns whether one more unknown peer can be accepted. Drops the oldest one if it has not introduced itself in time;
// launchers do that at once.
bool CoordinatorLinks::has_room() {
  if (unknown_peers_.size() < kMaxUnknownPeers + static_cast<std::size_t>(settings_.nodes)) return true;
  const Id oldest = *unknown_peers_.begin();
  if (Clock::now() - peers_.at(oldest).accepted < kIntroduction) return false;
  drop(oldest);
  return true;
}

void CoordinatorLinks::pause_accepting() {
  listener_.pause(kAcceptPause);
}

void CoordinatorLinks::mark_known(Id id) {
  unknown_peers_.erase(id);
}

void CoordinatorLinks::drop(Id id) {
  unknown_peers_.erase(id);
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  if (!found->second.session.empty()) sessions_.erase(found->second.session);
  peers_.erase(found);
}

CoordinatorLinks::Id CoordinatorLinks::add(UniqueFd fd) {
  const Id id = next_id_++;
  peers_.emplace(id, Peer{make_link(id, std::move(fd)), control::HeartbeatTimeout(Clock::now())});
  unknown_peers_.insert(id);
  return id;
}

std::unique_ptr<control::ControlLink> CoordinatorLinks::make_link(Id id, UniqueFd fd) {
  return std::make_unique<control::ControlLink>(
      loop_, std::move(fd),
      control::ControlLink::Callbacks{
          .on_message = [this, id](const control::Message& message) { on_message(id, message); },
          .on_sign_of_life = [this, id] { peers_.at(id).heartbeat.received(Clock::now()); },
          .on_relayed = [this, id](std::uint32_t round, std::string_view bytes) { on_relayed(id, round, bytes); },
          .on_space_available = [this, id] { callbacks_.on_space_available(id); },
          .on_closed = [this, id](const std::string& reason) { on_closed(id, reason); },
          .on_disconnected = [this, id](bool is_network) { return is_network && !peers_.at(id).session.empty(); }});
}

void CoordinatorLinks::on_message(Id id, const control::Message& message) {
  Peer& peer = peers_.at(id);
  const bool is_acknowledgement =
      std::holds_alternative<control::Acknowledged>(message) && !unknown_peers_.contains(id);
  if (peer.is_given_up && !is_acknowledgement) return;
  if (!peer.challenge.empty()) {
    check(id, message);
  } else if (const auto* pong = std::get_if<control::Pong>(&message)) {
    on_pong(peer, *pong);
  } else {
    callbacks_.on_message(id, message);
  }
}

void CoordinatorLinks::on_relayed(Id id, std::uint32_t round, std::string_view bytes) {
  const Peer& peer = peers_.at(id);
  if (!peer.is_given_up && peer.challenge.empty()) callbacks_.on_relayed(id, round, bytes);
}

control::ControlLink* CoordinatorLinks::link(Id id) {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : found->second.link.get();
}

// Checks the first message of a peer. No other message is accepted before. A peer that fails the check does not end the
// job.
void CoordinatorLinks::check(Id id, const control::Message& message) {
  Peer& peer = peers_.at(id);
  if (const std::string what = protocol_violation(peer, message); !what.empty()) {
    reject(peer, what);
    return;
  }
  const auto& answer = std::get<control::Answer>(message);
  if (const auto found = sessions_.find(answer.session); found != sessions_.end()) {
    resume_session(id, found->second, answer);
  } else if (answer.is_new && answer.received == 0) {
    begin_session(id, answer);
  } else {
    peer.link->send(control::Refusal{{"the job continues or has ended without this node", 1}});
    peer.is_given_up = true;
  }
}

// Returns "" when the answer is right.
std::string CoordinatorLinks::protocol_violation(const Peer& peer, const control::Message& message) const {
  const auto* answer = std::get_if<control::Answer>(&message);
  const auto* hello = std::get_if<control::Hello>(&message);
  if (hello != nullptr && hello->protocol != control::kProtocol) {
    return "is of another version of ddprun (" + hello->version + ") and cannot talk to";
  }
  if (answer == nullptr)
    return settings_.secret ? "has no --rdzv_secret_file, unlike" : "did not answer the challenge of";
  if (settings_.secret && answer->proof.empty()) return "has no --rdzv_secret_file, unlike";
  const control::Secret::Claim claim{.role = control::kNodeRole,
                                     .own_challenge = answer->challenge,
                                     .other_challenge = peer.challenge,
                                     .session = answer->session,
                                     .received = answer->received};
  if (settings_.secret && !settings_.secret->is_valid_proof(answer->proof, claim)) {
    return "has another --rdzv_secret_file than";
  }
  if (answer->repeated != peer.challenge || answer->session.empty()) {
    return "repeats messages of an earlier connection, and did not answer the challenge of";
  }
  return "";
}

void CoordinatorLinks::reject(Peer& peer, const std::string& what) {
  peer.link->send(
      control::Refusal{{"this node " + what + " the one that hosts the store (host " + host_name() + ")", 125}});
  ++named_unknown_peers_;
  if (named_unknown_peers_ <= kMaxNamedUnknownPeers) {
    callbacks_.on_unknown_peer("a launcher that " + what + " this node was refused: " + peer.link->peer());
  }
  peer.is_given_up = true;  // the peer closes the connection
}

// Returns false when the kernel does not accept these few bytes: then the connection is already lost.
bool CoordinatorLinks::welcome(Peer& peer, const control::Answer& answer, std::uint64_t received) const {
  control::Welcome text{
      .repeated = answer.challenge, .received = received, .reconnect_after = settings_.reconnect_after};
  if (settings_.secret) {
    text.proof = settings_.secret->proof({.role = control::kCoordinatorRole,
                                          .own_challenge = peer.challenge,
                                          .other_challenge = answer.challenge,
                                          .session = answer.session,
                                          .received = received});
  }
  peer.link->send(text);
  return peer.link->is_idle();
}

// The node sends nothing else before it has received the welcome.
void CoordinatorLinks::begin_session(Id id, const control::Answer& answer) {
  Peer& peer = peers_.at(id);
  if (!welcome(peer, answer, 0)) {
    drop(id);
    return;
  }
  peer.challenge.clear();
  peer.session = answer.session;
  peer.attempt = answer.attempt;
  sessions_.emplace(answer.session, id);
  peer.link = make_link(id, peer.link->release());
}

// The node's earlier connection is lost or unusable. Messages that still arrive on it are ignored, as the node sends
// them again.
void CoordinatorLinks::resume_session(Id unknown, Id id, const control::Answer& answer) {
  Peer& from = peers_.at(unknown);
  Peer& peer = peers_.at(id);
  if (answer.attempt <= peer.attempt) {
    drop(unknown);  // the node has made a newer connection since
    return;
  }
  if (!peer.link->can_resume(answer.received)) {
    from.link->send(control::Refusal{
        {"the connection of this node cannot be resumed: it reports that it has received more than was sent", 1}});
    from.is_given_up = true;
    return;
  }
  UniqueFd fd;
  if (welcome(from, answer, peer.link->received())) fd = from.link->release();
  drop(unknown);
  if (!fd) return;
  peer.attempt = answer.attempt;
  peer.heartbeat.received(Clock::now());
  peer.link->resume(std::move(fd), answer.received);
}

// The shorter the round trip, the smaller is the error of the assumption that the answer was given in its middle.
void CoordinatorLinks::on_pong(Peer& peer, const control::Pong& pong) const {
  peer.heartbeat.set_timeout(pong.timeout);
  const auto now = Clock::now();
  if (pong.sent == 0) return;  // not an answer to a ping
  if (pong.steady != 0) peer.steady.add(pong.sent, pong.steady, to_microseconds(now));
  const microseconds round_trip(to_microseconds(now) - pong.sent);
  if (round_trip.count() < 0 || (peer.round_trip && *peer.round_trip <= round_trip)) return;
  peer.round_trip = round_trip;
  const auto middle = duration_cast<microseconds>(system_clock::now().time_since_epoch()) - round_trip / 2;
  peer.clock_offset = microseconds(pong.clock) - middle;
}

microseconds CoordinatorLinks::clock_offset(Id id) const {
  const auto found = peers_.find(id);
  return found == peers_.end() ? microseconds(0) : found->second.clock_offset;
}

std::optional<ClockDifference> CoordinatorLinks::steady_difference(Id id) const {
  const auto found = peers_.find(id);
  return found == peers_.end() ? std::nullopt : found->second.steady.difference(to_microseconds(Clock::now()));
}

void CoordinatorLinks::relay_to_all(std::uint32_t round, std::string_view bytes) {
  for (const auto& [id, peer] : peers_) {
    if (unknown_peers_.contains(id)) continue;
    peer.link->relay_bytes(round, bytes);
    peer.link->flush();
  }
}

void CoordinatorLinks::send(Id to, const control::Message& message) {
  if (const auto found = peers_.find(to); found != peers_.end()) found->second.link->send(message);
}

void CoordinatorLinks::send_to_all(const control::Message& message) {
  const std::string frame = control::to_frame(control::to_text(message));
  for (const auto& [id, peer] : peers_) {
    if (!unknown_peers_.contains(id)) peer.link->send_frame(frame);
  }
}

void CoordinatorLinks::on_closed(Id id, const std::string& reason) {
  const bool is_missed = !peers_.at(id).is_given_up && !unknown_peers_.contains(id);
  drop(id);
  // If this launcher was delayed, the node may have closed the connection for that reason.
  const bool is_silent = was_delayed(settings_.reconnect_after);
  if (is_missed) callbacks_.on_gone(id, {.reason = reason, .last = system_clock::now(), .is_silent = is_silent});
}

void CoordinatorLinks::lose_coordinator(Id id, const std::string& reason) {
  Peer& peer = peers_.at(id);
  if (peer.is_given_up) return;
  peer.is_given_up = true;
  peer.given_up = Clock::now();
  callbacks_.on_gone(id, {.reason = reason, .last = system_clock::now(), .is_silent = true});
}

void CoordinatorLinks::give_up(Id id, Peer& peer, Clock::time_point now) {
  peer.is_given_up = true;
  peer.given_up = now;
  peer.link->send(control::NodeDropped{});
  const auto silence = now - peer.heartbeat.last_received();
  callbacks_.on_gone(
      id, {.reason = "it has sent nothing for " + in_seconds(silence) + ": it is frozen, or cannot be reached",
           .last = system_clock::now() - duration_cast<system_clock::duration>(silence),
           .is_silent = true});
}

bool CoordinatorLinks::was_delayed(std::chrono::milliseconds time) const {
  const auto now = Clock::now();
  return now - next_ping_ >= time || (longest_delay_ >= time && now - delayed_ <= kDelayMemory);
}

void CoordinatorLinks::ping_all() {
  const control::Ping ping{to_microseconds(Clock::now()), callbacks_.timeout()};
  const std::string frame = control::to_frame(control::to_text(ping));
  for (auto& [id, peer] : peers_) {
    if (peer.is_given_up || !peer.challenge.empty() || !peer.link->is_connected()) continue;
    peer.link->acknowledge();
    peer.link->send_frame(frame);
  }
}

// Ends connections of nodes that were given up and have not returned, and of nodes that do not read.
void CoordinatorLinks::close_useless_connections(Clock::time_point now) {
  std::vector<Id> overflown;
  std::vector<Id> forgotten;
  for (const auto& [id, peer] : peers_) {
    const bool is_known = !unknown_peers_.contains(id);
    if (is_known && peer.link->has_overflowed()) overflown.push_back(id);
    if (is_known && peer.is_given_up && now - peer.given_up > kDroppedPeerTimeout && !peer.link->is_connected()) {
      forgotten.push_back(id);
    }
  }
  for (const Id id : forgotten) drop(id);
  for (const Id id : overflown) {
    if (peers_.contains(id)) on_closed(id, "it does not read what is sent to it");
  }
}

// Drops unknown peers after a fixed time, whatever they have sent.
void CoordinatorLinks::close_unknown_peers(Clock::time_point now) {
  const auto unknown = unknown_peers_;
  for (const Id id : unknown) {
    const Peer& peer = peers_.at(id);
    if (now - peer.accepted > (peer.session.empty() ? kUnknownPeerTimeout : kUnintroducedPeerTimeout)) drop(id);
  }
}

void CoordinatorLinks::on_tick() {
  const auto now = Clock::now();
  const auto own_delay = now - next_ping_;
  if (own_delay >= longest_delay_ || now - delayed_ > kDelayMemory) {
    longest_delay_ = own_delay;
    delayed_ = now;
  }
  next_ping_ = now + settings_.ping_interval;
  timer_.start_at(next_ping_, [this] { on_tick(); });
  ping_all();
  for (auto& [id, peer] : peers_) {
    // Messages that arrived during the delay have not been read yet.
    if (own_delay > settings_.ping_interval) peer.heartbeat.extend(own_delay);
  }
  close_unknown_peers(now);
  close_useless_connections(now);
  for (auto& [id, peer] : peers_) {  // give_up() does not remove a peer from the map
    if (!peer.is_given_up && !unknown_peers_.contains(id) && peer.heartbeat.is_expired(now)) give_up(id, peer, now);
  }
}

}  // namespace launcher
