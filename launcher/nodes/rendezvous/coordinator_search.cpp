#include "launcher/nodes/rendezvous/coordinator_search.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "launcher/nodes/torchrun/torchrun_keys.h"
#include "launcher/os/network/tcp_socket.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// The pause after a store closed its connection: that store was just ending, or is not a store.
constexpr auto kSearchPause = 100ms;
// A store answers at once. If a program does not, one line of text is sent once to find out what it is.
constexpr auto kSlowReply = 5s;
constexpr auto kOtherServiceReply = 500ms;
// The pause after another program has answered.
constexpr auto kOtherServicePause = 1s;
constexpr int kOtherServiceAnswers = 3;
// The launcher listens before its store answers, so if it cannot be reached in this time, it has ended or is behind a
// firewall.
constexpr auto kReachable = 5s;
// Requests of thousands of nodes must not overload the machine on which node 0 will start.
constexpr auto kPausePerNode = 200us;

std::chrono::milliseconds early_pause(int nodes) {
  return std::max(Connector::kEarlyPause, std::chrono::duration_cast<std::chrono::milliseconds>(nodes * kPausePerNode));
}

}  // namespace

CoordinatorSearch::CoordinatorSearch(EventLoop& loop, std::string host, std::uint16_t port, int nodes,
                                     Callbacks callbacks)
    : loop_(loop),
      host_(std::move(host)),
      port_(port),
      early_pause_(early_pause(nodes)),
      callbacks_(std::move(callbacks)) {
  ask_store();
}

std::string CoordinatorSearch::problem() const {
  if (!problem_.empty()) return problem_;
  return store_ ? store_->problem() : "";
}

void CoordinatorSearch::ask_store() {
  connector_.reset();
  store_ = std::make_unique<store::StoreClient>(
      loop_, host_, port_, [this] { on_store_lost(); }, early_pause_);
  if (!is_slow_) store_->probe_after(other_answers_ > 0 ? kOtherServiceReply : kSlowReply);
  store_->check(kControlPortKey, [this](bool exists) {
    other_answers_ = 0;
    if (!exists) {
      // Called later, as each of these callbacks may destroy the object whose callback is running.
      timer_.start_in(0ms, [this] { callbacks_.on_foreign(); });
      return;
    }
    store_->get(kControlPortKey, [this](const std::string& port) { connect(port); });
  });
}

// A proxy may accept connections before the server that it forwards to has started, so one try is not enough.
void CoordinatorSearch::on_store_lost() {
  if (store_->other_service().empty()) {
    is_slow_ = is_slow_ || store_->has_probed();
    ask_again("the program that listens there closed the connection without an answer");
    return;
  }
  const std::string port = std::to_string(port_);
  problem_ = "port " + port + " of host " + host_ + " belongs to " + store_->other_service() +
             ": end that program, or choose another --master_port (--rdzv_endpoint HOST:PORT) on all nodes";
  if (++other_answers_ < kOtherServiceAnswers || !callbacks_.on_other_service) {
    timer_.start_in(kOtherServicePause, [this] { ask_store(); });
  } else {
    timer_.start_in(0ms, [this] { callbacks_.on_other_service(problem_); });
  }
}

void CoordinatorSearch::ask_again(std::string problem) {
  problem_ = std::move(problem);
  timer_.start_in(kSearchPause, [this] { ask_store(); });
}

void CoordinatorSearch::connect(const std::string& text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) {
    ask_again("the program that listens there is not a store of ddprun");
    return;
  }
  connector_ = std::make_unique<Connector>(loop_, peer_address(store_->fd()), port, [this](UniqueFd fd) {
    const auto held = std::make_shared<UniqueFd>(std::move(fd));
    timer_.start_in(0ms, [this, held] { callbacks_.on_found(std::move(*held)); });
  });
  timer_.start_in(kReachable, [this, text] {
    ask_again("its launcher's port " + text + " cannot be reached: " + connector_->problem());
  });
}

}  // namespace launcher
