#include "comm/shm/driver.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ddp::shm {
namespace {

// How often a waiting rank checks whether the others are still alive.
constexpr auto kStallCheckInterval = std::chrono::milliseconds(10);
// On a busy machine a waiting rank may check only this much later.
constexpr auto kMaxCheckDelay = 100 * kStallCheckInterval;

std::exception_ptr error_of(const std::string& why) {
  return std::make_exception_ptr(std::runtime_error(why));
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an unknown error";
  }
}

}  // namespace

Driver::Driver(const Segment& segment, int rank, std::vector<int> numbers, OperationQueue& queue)
    : queue_(queue), slots_(segment, rank), peers_(segment, rank, std::move(numbers)), mailbox_(segment.ranks()) {
  peers_.arrive();
}

void Driver::drive(const Limit& limit, SpinPolicy& policy) {
  bool is_blocked = false;
  slots_.note_processor();
  for (;;) {
    if (queue_.has_new()) {
      const std::lock_guard lock(queue_.mutex());
      take_new();
    }
    const bool moved = advance();
    check_for_stall_if_due();
    if (has_reached(limit) || (limit.one_pass && !moved)) return;
    if (moved) {
      is_blocked = false;
      continue;
    }
    if (!std::exchange(is_blocked, true)) policy.begin();
    if (policy.keep_spinning([&] { return awaits_rank_on_same_processor(); })) continue;
    // A thread of the engine's own has to share in any case, with one that computes.
    const bool may_move = limit.until != nullptr && !policy.shares_processors();
    const auto awaited = may_move ? awaited_ranks() : std::vector<int>();
    const int processor = slots_.processor();
    const bool is_time_up = sleep(limit);
    policy.slept();
    slots_.note_processor();
    leave_shared_processor(awaited, processor);
    is_blocked = false;
    if (is_time_up || has_reached(limit)) return;
  }
}

// As drive() would do it, but without taking the role and giving it back, which costs as much as a small sum.
bool Driver::completes_immediately(JointOperation& operation, WaitObserver* observer) {
  constexpr int kPasses = 8;
  if (!is_idle() || operation.on_end_) return false;
  slots_.note_processor();
  try {
    for (int pass = 0; pass < kPasses; ++pass) {
      bool moved = false;
      const bool is_done = operation.advance(slots_, moved);
      if (observer != nullptr && pass == 0) observer->announced();
      if (!is_done) continue;
      operation.ended_.store(true, std::memory_order_release);
      return true;
    }
  } catch (...) {
    // The ranks disagree. The driver finds this again and reports it to all operations.
  }
  return false;
}

bool Driver::must_stop(const Limit& limit) const {
  return limit.is_finishing ? queue_.is_aborting() : queue_.is_stopping();
}

bool Driver::has_reached(const Limit& limit) const {
  if (!ended_.empty() || must_stop(limit)) return true;
  if (limit.until == nullptr) return !limit.one_pass && is_idle() && !queue_.has_new();
  return limit.until->has_ended();
}

void Driver::take_new() {
  queue_.take_all([this](JointPtr operation) { joint_operations_.push_back(std::move(operation)); },
                  [this](MessagePtr message) {
                    start_timeout(*message);
                    mailbox_.add(std::move(message));
                  });
}

bool Driver::advance() {
  bool moved = false;
  if (!joint_operations_.empty()) {
    try {
      if (joint_operations_.front()->advance(slots_, moved)) {
        JointPtr done = std::move(joint_operations_.front());
        joint_operations_.pop_front();
        end(std::move(done), nullptr);
      }
    } catch (...) {
      fail_all(std::current_exception());
      return true;
    }
  }
  mailbox_.advance(slots_, moved, ended_messages_);
  for (Mailbox::Ended& message : ended_messages_) end(message.message, std::move(message.error));
  ended_messages_.clear();
  return moved;
}

std::vector<int> Driver::awaited_ranks() const {
  std::vector<int> ranks;
  const auto add = [&](const Awaited& awaited) {
    ranks.insert(ranks.end(), awaited.ranks.begin(), awaited.ranks.end());
  };
  if (!joint_operations_.empty()) add(joint_operations_.front()->awaited(slots_));
  for (const MessagePtr& message : mailbox_.all()) add(Mailbox::awaited(*message, slots_));
  return ranks;
}

bool Driver::awaits_rank_on_same_processor() const {
  return std::ranges::any_of(awaited_ranks(), [&](int rank) { return is_on_same_processor(rank); });
}

// After a sleep on `processor_before`, for `awaited`.
void Driver::leave_shared_processor(const std::vector<int>& awaited, int processor_before) {
  if (!std::ranges::any_of(awaited, [&](int rank) { return is_on_same_processor(rank); })) return;
  if (!move_pause_.may_move(Clock::now())) return;
  if (!move_to_other_processor(processor_before, slots_.other_rank_processors())) return;
  slots_.note_processor();
  move_pause_.moved(Clock::now());
}

// Whether the limit has expired.
bool Driver::sleep(const Limit& limit) {
  std::chrono::nanoseconds slice = kStallCheckInterval;
  const auto before = Clock::now();
  if (limit.time) slice = std::clamp<std::chrono::nanoseconds>(*limit.time - before, {}, slice);
  WaitCondition condition = WaitCondition::any();
  if (!joint_operations_.empty()) {
    start_timeout(*joint_operations_.front());
    if (mailbox_.is_empty()) condition = joint_operations_.front()->awaited(slots_).condition;
  }
  check_for_stall(/*thoroughly=*/false);
  if (!ended_.empty()) return false;
  sleep_until(slots_.segment().block(slots_.rank()), condition, slice, [&] {
    if (queue_.has_new() || must_stop(limit) || advance()) return true;
    // The operation may wait for another rank by now, whose wake() would not match `condition`.
    return condition != WaitCondition::any() && !joint_operations_.empty() &&
           joint_operations_.front()->awaited(slots_).condition != condition;
  });
  const auto now = Clock::now();
  if (ended_.empty() && (now - before >= slice || now - last_full_check_ >= kStallCheckInterval))
    check_for_stall(/*thoroughly=*/true);
  return limit.time && now >= *limit.time;
}

// A message may time out, or its rank die, while collectives run and this thread never sleeps.
void Driver::check_for_stall_if_due() {
  constexpr uint32_t kPasses = 64;  // as many cost less than a look at the clock each
  if (mailbox_.is_empty() || ++passes_ % kPasses != 0 || Clock::now() - last_full_check_ < kStallCheckInterval) return;
  check_for_stall(/*thoroughly=*/true);
}

// When no rank will do what is awaited, it is tried once more: it may have been done before.
void Driver::check_for_stall(bool thoroughly) {
  if (thoroughly) last_full_check_ = Clock::now();
  if (thoroughly && !is_idle()) {
    const Awaited awaited = !joint_operations_.empty() ? joint_operations_.front()->awaited(slots_)
                                                       : Mailbox::awaited(*mailbox_.all().front(), slots_);
    if (!awaited.ranks.empty()) peers_.wait_for(awaited.ranks.front());
  }
  std::optional<StallReason> reason;
  if (!joint_operations_.empty()) {
    if (auto failure = peers_.first_failure()) {
      reason = StallReason{.text = std::move(*failure)};
    } else {
      reason = stall_reason_of(*joint_operations_.front(), joint_operations_.front()->awaited(slots_), thoroughly);
    }
  }
  if (reason) {
    if (advance()) return;
    // A rank may go once it has done its part, while others are late.
    const auto missing = joint_operations_.front()->awaited(slots_).ranks;
    const bool has_done_its_part = reason->gone && std::ranges::find(missing, *reason->gone) == missing.end();
    if (!has_done_its_part) fail_all(error_of(reason->text));
    return;
  }
  for (const MessagePtr& message : mailbox_.all()) {
    reason = stall_reason_of(*message, Mailbox::awaited(*message, slots_), thoroughly);
    if (!reason) continue;
    if (advance()) return;
    if (mailbox_.remove(*message)) {
      end(message, error_of(reason->text));
    } else {
      fail_all(error_of(reason->text));
      return;
    }
  }
}

std::optional<Driver::StallReason> Driver::stall_reason_of(Operation& operation, const Awaited& awaited,
                                                           bool thoroughly) {
  std::optional<StallReason> first;
  bool are_all_gone = !awaited.ranks.empty();
  for (const int rank : awaited.ranks) {
    auto gone = thoroughly ? peers_.gone(rank) : peers_.announced_reason(rank);
    if (!gone) {
      are_all_gone = false;
    } else if (!first) {
      first = StallReason{.text = std::move(*gone), .gone = rank};
    }
  }
  if (first && (are_all_gone || !awaited.any_of_them)) return first;
  if (!thoroughly) return std::nullopt;
  const auto deadline = operation.deadline_.load();
  if (deadline == 0 || Clock::now().time_since_epoch().count() < deadline) return std::nullopt;
  std::string text = "timed out after " + std::to_string(operation.timeout().count()) + " ms waiting for ";
  // The awaited rank may itself wait for another one, and its time be over in the same moment.
  const std::chrono::nanoseconds recently =
      std::clamp<std::chrono::nanoseconds>(operation.timeout() / 4, 2 * kStallCheckInterval, kMaxCheckDelay);
  for (size_t i = 0; i < awaited.ranks.size(); ++i) {
    text += (i == 0 ? "" : " and ") + peers_.name_with_cause(awaited.ranks[i], recently);
  }
  return StallReason{.text = std::move(text)};
}

// Another thread may set a deadline at the same time; that one is used.
void Driver::start_timeout(Operation& operation) {
  Clock::rep none = 0;
  if (operation.deadline_.load() != none) return;
  operation.deadline_.compare_exchange_strong(none, (Clock::now() + operation.timeout()).time_since_epoch().count());
}

void Driver::end(OperationPtr operation, std::exception_ptr error) {
  if (error && !first_error_) first_error_ = error;
  operation->error_ = std::move(error);
  operation->ended_.store(true, std::memory_order_release);
  ended_.push_back(std::move(operation));
}

// The ranks' rounds no longer agree, so nothing can follow: what was started until now fails as well, and nothing can
// be started.
void Driver::fail_all(std::exception_ptr error) {
  {
    const std::lock_guard lock(queue_.mutex());
    queue_.fail(error);
    take_new();
  }
  end_all(error);
  peers_.leave(text_of(error));
}

void Driver::end_all(const std::exception_ptr& error) {
  for (const JointPtr& operation : std::exchange(joint_operations_, {})) end(operation, error);
  for (const MessagePtr& message : mailbox_.all()) end(message, error);
  mailbox_ = Mailbox(slots_.size());
}

void Driver::leave(const std::exception_ptr& error, bool has_failed) {
  const auto cause = first_error_ ? first_error_ : error;
  end_all(error);
  peers_.leave(has_failed ? text_of(cause) : "");
}

}  // namespace ddp::shm
