#include "launcher/nodes/torchrun/torchrun_peers.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "launcher/nodes/torchrun/static_messages.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxQuoted = 80;
// Written over a node's entry when it was read, so that another entry shows that a second node has the same number.
constexpr const char* kTaken = "taken";
constexpr auto kPollPause = 100ms;

}  // namespace

TorchrunPeers::TorchrunPeers(EventLoop& loop, store::StoreServer& store, const std::string& run_id, Callbacks callbacks)
    : store_(store),
      keys_(run_id),
      callbacks_(std::move(callbacks)),
      loop_(loop),
      client_(loop, store.host(), store.port(), [] {}) {}

void TorchrunPeers::expect(int node) {
  if (node == expected_) return;
  expected_ = node;
  // Each wait has a connection of its own: the reply to a wait that was given up would arrive later, between other
  // replies.
  watch_ = std::make_unique<store::StoreClient>(loop_, store_.host(), store_.port(), [] {});
  watch_->wait(keys_.role_info(node), [this, node] { call_later([this, node] { on_arrival(node); }); });
}

// Calls `action` later: it may expect another node, and so destroy the connection whose reply is being handled.
void TorchrunPeers::call_later(std::function<void()> action) {
  call_later_timer_.start_in({}, std::move(action));
}

void TorchrunPeers::on_arrival(int node) {
  if (node != expected_) return;
  const std::string text = store_.look_up(keys_.role_info(node));
  const auto info = parse_role_info(text);
  if (info && info->node == node) {
    callbacks_.on_arrived(*info);
  } else {
    callbacks_.on_nonsense("node " + std::to_string(node) + " sent an invalid description of itself: '" +
                           printable(beginning(text, kMaxQuoted)) + "'");
  }
}

void TorchrunPeers::assign(int node, const NodeRanks& ranks) {
  client_.set(keys_.assigned_ranks(node), to_json(ranks));
  store_.set(keys_.role_info(node), kTaken);
  assigned_.insert(node);
  if (!poll_timer_.is_running()) check_for_duplicate();
}

void TorchrunPeers::check_for_duplicate() {
  const auto second = std::find_if(assigned_.begin(), assigned_.end(),
                                   [this](int node) { return store_.look_up(keys_.role_info(node)) != kTaken; });
  poll_timer_.cancel();
  if (second != assigned_.end()) {
    callbacks_.on_twice(*second);
  } else {
    poll_timer_.start_in(kPollPause, [this] { check_for_duplicate(); });
  }
}

void TorchrunPeers::node_ended(int nnodes) {
  client_.add(keys_.ended(), 1, [this, nnodes](std::int64_t ended) {
    if (ended == nnodes) client_.set(keys_.all_ended(), "done");
  });
}

void TorchrunPeers::watch_end() {
  watch_ = std::make_unique<store::StoreClient>(loop_, store_.host(), store_.port(), [] {});
  watch_->wait(keys_.all_ended(), [this] { call_later([this] { callbacks_.on_all_ended(); }); });
}

}  // namespace launcher
