#include "launcher/nodes/rendezvous/session_connector.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <variant>

#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/host_name.h"
#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// If the host can be reached, a new connection takes a fraction of this time.
constexpr auto kConnect = 1s;
// A coordinator that is itself delayed answers late, and asking it again would not help.
constexpr auto kHandshake = 3s;
constexpr auto kPause = 100ms;

}  // namespace

SessionConnector::SessionConnector(EventLoop& loop, Settings settings, Callbacks callbacks)
    : loop_(loop), settings_(std::move(settings)), callbacks_(std::move(callbacks)), session_(random_id()) {}

SessionConnector::~SessionConnector() {
  drop_attempt();
}

void SessionConnector::drop_attempt() {
  timer_.cancel();
  if (connecting_) loop_.remove(connecting_.get());
  connecting_.reset();
  // If the coordinator has received a request on this connection, it may have continued with it.
  if (attempt_ && attempt_->is_connected() && has_asked_) replaced_.push_back(attempt_->release());
  attempt_.reset();
}

void SessionConnector::begin(UniqueFd fd) {
  address_.length = sizeof address_.storage;
  ::getpeername(fd.get(), reinterpret_cast<sockaddr*>(&address_.storage), &address_.length);
  is_connecting_ = true;
  start_handshake(std::move(fd));
}

void SessionConnector::reconnect() {
  if (is_connecting_) return;
  is_connecting_ = true;
  connect();
}

void SessionConnector::cancel() {
  drop_attempt();
  is_connecting_ = false;
}

void SessionConnector::try_again(EventLoop::Clock::duration pause) {
  drop_attempt();
  timer_.start_in(pause, [this] { connect(); });
}

void SessionConnector::connect() {
  drop_attempt();
  connecting_.reset(::socket(address_.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto* peer = reinterpret_cast<const sockaddr*>(&address_.storage);
  if (!connecting_ || (::connect(connecting_.get(), peer, address_.length) != 0 && errno != EINPROGRESS)) {
    const bool is_refused = connecting_ && errno == ECONNREFUSED;
    connecting_.reset();
    is_refused ? end(std::strerror(ECONNREFUSED)) : try_again(kPause);
    return;
  }
  loop_.add(connecting_.get(), EPOLLOUT, [this](std::uint32_t) { on_connect_outcome(); });
  timer_.start_in(kConnect, [this] { connect(); });
}

// A refused connection means that the host is up but no longer listens at the port.
void SessionConnector::on_connect_outcome() {
  const int error = pending_error(connecting_.get());
  loop_.remove(connecting_.get());
  UniqueFd fd = std::move(connecting_);
  if (error == ECONNREFUSED || (error == 0 && is_connected_to_itself(fd.get()))) {
    end(std::strerror(ECONNREFUSED));
  } else if (error != 0) {
    try_again(kPause);
  } else {
    set_connection_options(fd.get());
    start_handshake(std::move(fd));
  }
}

void SessionConnector::start_handshake(UniqueFd fd) {
  coordinator_challenge_.clear();
  attempt_ = std::make_unique<control::ControlLink>(
      loop_, std::move(fd),
      control::ControlLink::Callbacks{.on_message = [this](const control::Message& message) { on_message(message); },
                                      .on_sign_of_life = [] {},
                                      .on_relayed = [](std::uint32_t, std::string_view) {},
                                      .on_space_available = [] {},
                                      .on_closed = [this](const std::string&) { try_again(kPause); }});
  timer_.start_in(kHandshake, [this] { connect(); });
}

void SessionConnector::on_message(const control::Message& message) {
  if (const auto* challenge = std::get_if<control::Challenge>(&message)) {
    on(*challenge);
  } else if (const auto* welcome = std::get_if<control::Welcome>(&message)) {
    on(*welcome);
  } else if (const auto* refusal = std::get_if<control::Refusal>(&message)) {
    refuse(refusal->reason);
  } else if (coordinator_challenge_.empty()) {
    refuse_version();
  }
}

void SessionConnector::on(const control::Challenge& challenge) {
  if (!coordinator_challenge_.empty()) return;
  if (challenge.protocol != control::kProtocol) {
    refuse_version();
    return;
  }
  if (UniqueFd replaced = callbacks_.on_asking()) replaced_.push_back(std::move(replaced));
  has_asked_ = true;
  coordinator_challenge_ = challenge.text;
  node_challenge_ = control::new_challenge();
  control::Answer answer{.challenge = node_challenge_,
                         .repeated = coordinator_challenge_,
                         .session = session_,
                         .received = callbacks_.received(),
                         .is_new = callbacks_.received() == 0 && callbacks_.acknowledged() == 0,
                         .attempt = ++attempts_};
  if (settings_.secret) {
    answer.proof = settings_.secret->proof({.role = control::kNodeRole,
                                            .own_challenge = node_challenge_,
                                            .other_challenge = coordinator_challenge_,
                                            .session = session_,
                                            .received = answer.received});
  }
  attempt_->send(answer);
}

void SessionConnector::on(const control::Welcome& welcome) {
  if (coordinator_challenge_.empty()) return;
  if (settings_.secret && welcome.proof.empty()) {
    refuse(
        {"the launcher at " + settings_.coordinator + " was started without --rdzv_secret_file, but this one with it",
         to_int(ExitStatus::kLauncherError)});
    return;
  }
  const control::Secret::Claim claim{.role = control::kCoordinatorRole,
                                     .own_challenge = coordinator_challenge_,
                                     .other_challenge = node_challenge_,
                                     .session = session_,
                                     .received = welcome.received};
  if (settings_.secret && !settings_.secret->is_valid_proof(welcome.proof, claim)) {
    refuse({"the program at " + settings_.coordinator + " does not have the secret of --rdzv_secret_file",
            to_int(ExitStatus::kLauncherError)});
    return;
  }
  if (welcome.repeated != node_challenge_) {
    refuse({"the program at " + settings_.coordinator + " repeats messages of an earlier connection",
            to_int(ExitStatus::kLauncherError)});
    return;
  }
  UniqueFd fd = attempt_->release();
  const std::string rest = attempt_->take_rest();
  is_connecting_ = false;
  has_asked_ = false;
  drop_attempt();
  replaced_.clear();
  const auto on_connected = callbacks_.on_connected;
  on_connected(std::move(fd), welcome, rest);
}

// An older launcher compares the versions as well, and ends the job on all nodes.
void SessionConnector::refuse_version() {
  attempt_->send(settings_.hello);
  refuse({"the launcher at " + settings_.coordinator +
              " is of another version of ddprun, which this one cannot talk to: use the same version on all nodes",
          to_int(ExitStatus::kLauncherError)});
}

void SessionConnector::refuse(const JoinFailure& reason) {
  drop_attempt();
  is_connecting_ = false;
  const auto on_refused = callbacks_.on_refused;
  on_refused(reason);
}

void SessionConnector::end(const std::string& reason) {
  drop_attempt();
  is_connecting_ = false;
  const auto on_ended = callbacks_.on_ended;
  on_ended(reason);
}

}  // namespace launcher
