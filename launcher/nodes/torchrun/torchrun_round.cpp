#include "launcher/nodes/torchrun/torchrun_round.h"

#include <utility>

#include "launcher/nodes/torchrun/static_messages.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/utf8.h"
#include "launcher/plan/outcome/describe.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxQuotedName = 80;

}  // namespace

TorchrunRound::TorchrunRound(EventLoop& loop, Messages& messages, TorchrunRoundOptions options)
    : loop_(loop),
      messages_(messages),
      options_(std::move(options)),
      keys_(options_.run_id),
      client_(loop, options_.host, options_.port, [this] { on_lost(); }) {
  const auto now = EventLoop::Clock::now();
  const std::string place = options_.host + " port " + std::to_string(options_.port);
  timers_.push_back(loop_.call_at(now + kSilentWait, [this, place] {
    if (!has_joined_ && !join_failure_) {
      messages_.print("waiting for the other nodes at " + place +
                      " (only torchrun on node 0 knows which ones are missing)");
    }
  }));
  timers_.push_back(loop_.call_at(now + options_.join_timeout, [this, place] {
    if (!has_joined_)
      fail_to_join("the other nodes (only torchrun on node 0 knows which ones) did not arrive at " + place +
                   " within the " + seconds_text(options_.join_timeout) + " of --join_timeout");
  }));

  client_.add(TorchrunKeys::kArrived, 1, [](std::int64_t) {});
  client_.set(keys_.role_info(options_.own.node), to_json(options_.own));
  client_.wait(keys_.assigned_ranks(options_.own.node), [this] {
    client_.get(keys_.assigned_ranks(options_.own.node), [this](const std::string& text) { join(text); });
  });
}

TorchrunRound::~TorchrunRound() {
  for (const EventLoop::TimerId& timer : timers_) loop_.cancel(timer);
  // Removes this node's entry, so that the others do not wait for it.
  if (!has_joined_) client_.remove_and_disconnect(keys_.role_info(options_.own.node));
}

void TorchrunRound::fail_to_join(const std::string& reason) {
  if (!join_failure_) join_failure_ = JoinFailure{reason, to_int(ExitStatus::kTimeout)};
}

// From now on this node listens for failures of other nodes.
void TorchrunRound::join(const std::string& text) {
  const auto ranks = parse_node_ranks(text);
  if (!ranks) {
    fail_to_join("expected the ranks of this node from node 0, got '" + printable(beginning(text, kMaxQuotedName)) +
                 "'");
    return;
  }
  has_joined_ = true;
  watcher_.emplace(loop_, options_.host, options_.port, [] {});
  watcher_->wait(keys_.failure(),
                 [this] { watcher_->get(keys_.failure(), [this](const std::string& notice) { on_notice(notice); }); });
  options_.on_joined(*ranks);
}

void TorchrunRound::on_lost() {
  if (has_left_) return;
  if (is_leaving_) {
    has_left_ = true;  // node 0 ends only when the job has ended
  } else if (!has_joined_) {
    fail_to_join(client_.other_service().empty()
                     ? "node 0 closed the connection"
                     : "the program that answered is not a store but " + client_.other_service());
  } else if (!first_failure_) {
    fail({.exit_status = 1, .text = "the connection to node 0 broke", .is_final = true}, false);
  }
}

void TorchrunRound::announce(const FailureNotice& notice) {
  // Only the first notice is stored; the answer shows whose it is.
  client_.compare_set(keys_.failure(), "", to_json(notice), [this](const std::string& text) { on_notice(text); });
}

void TorchrunRound::on_notice(const std::string& text) {
  if (first_failure_) return;
  FailureNotice notice = parse_failure_notice(text).value_or(FailureNotice{.text = "another node failed"});
  const bool is_own = notice.node == options_.own.node;
  fail(std::move(notice), is_own);
}

void TorchrunRound::fail(FailureNotice notice, bool is_own) {
  first_failure_ = std::move(notice);
  options_.on_failure(*first_failure_, is_own);
}

void TorchrunRound::leave() {
  is_leaving_ = true;
  client_.add(keys_.ended(), 1, [this](std::int64_t ended) {
    if (ended == options_.nnodes) client_.set(keys_.all_ended(), "done");
  });
  client_.wait(keys_.all_ended(), [this] { has_left_ = true; });
}

}  // namespace launcher
