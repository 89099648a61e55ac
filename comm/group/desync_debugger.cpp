#include "comm/group/desync_debugger.h"

#include <algorithm>
#include <utility>

#include "comm/group/bounded_store.h"
#include "comm/group/store_keys.h"

namespace ddp::detail {
namespace {

// A question is one line, made of one of these words and the group. The rest of the text is the verdict, if there is
// one.
constexpr std::string_view kWhere = "where ";
constexpr std::string_view kVerdict = "verdict ";
constexpr std::string_view kStop = "stop";

// Returns the question's number.
int64_t put_question(c10d::Store& store, int rank, const std::string& question) {
  const int64_t number = store.add(keys::questions(rank), 1);
  store.set(keys::question(rank, number), std::vector<uint8_t>(question.begin(), question.end()));
  return number;
}

}  // namespace

DesyncDebugger::DesyncDebugger(Store store, c10::intrusive_ptr<BoundedStore> bounded, int rank)
    : store_(std::move(store)), bounded_(std::move(bounded)), rank_(rank), thread_([this] { serve(); }) {}

DesyncDebugger::~DesyncDebugger() {
  stop();
}

void DesyncDebugger::stop() noexcept {
  if (stopping_.exchange(true)) return;
  try {
    if (bounded_) {
      bounded_->interrupt();
    } else {
      put_question(*store_, rank_, std::string(kStop));
    }
    if (thread_.joinable()) thread_.join();
  } catch (const std::exception&) {
    if (thread_.joinable()) thread_.detach();  // does not occur: a store in memory does not fail
  }
}

void DesyncDebugger::add(const std::string& group, const std::shared_ptr<const CallLog>& log) {
  const std::lock_guard lock(mutex_);
  logs_[group] = log;
}

void DesyncDebugger::serve() noexcept {
  constexpr auto kForever = std::chrono::hours(24 * 365);
  for (int64_t number = 1; !stopping_; ++number) {
    try {
      store_->wait({keys::question(rank_, number)}, kForever);
      if (!stopping_) answer(number);
    } catch (const std::exception&) {  // the store has closed, or this rank is leaving it
      return;
    }
  }
}

void DesyncDebugger::answer(int64_t number) {
  const std::string question = get_text(*store_, keys::question(rank_, number));
  store_->deleteKey(keys::question(rank_, number));
  const size_t line = std::min(question.find('\n'), question.size());
  const size_t rest = std::min(line + 1, question.size());
  if (question.starts_with(kVerdict)) {
    set_verdict(question.substr(kVerdict.size(), line - kVerdict.size()), question.substr(rest));
    store_->set(keys::learned(rank_), std::string("1"));
  } else if (question.starts_with(kWhere)) {
    std::shared_ptr<const CallLog> log;
    {
      const std::lock_guard lock(mutex_);
      const auto found = logs_.find(question.substr(kWhere.size(), line - kWhere.size()));
      if (found != logs_.end()) log = found->second.lock();
    }
    const std::string text = to_text(log ? log->report() : RankReport{});
    store_->set(keys::answer(rank_, number), std::vector<uint8_t>(text.begin(), text.end()));
  }
}

std::map<int, RankReport> DesyncDebugger::ask(c10d::Store& store, const std::string& group,
                                              const std::vector<int>& ranks, std::chrono::milliseconds limit) const {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  constexpr auto kPollInterval = std::chrono::milliseconds(5);
  std::map<int, int64_t> asked;
  for (const int rank : ranks) asked[rank] = put_question(store, rank, std::string(kWhere) + group);
  std::map<int, RankReport> reports;
  for (;;) {
    for (auto question = asked.begin(); question != asked.end();) {
      const std::string key = keys::answer(question->first, question->second);
      if (store.check({key})) {
        reports[question->first] = report_from(get_text(store, key));
        store.deleteKey(key);
        question = asked.erase(question);
      } else {
        ++question;
      }
    }
    if (asked.empty() || std::chrono::steady_clock::now() > deadline) break;
    std::this_thread::sleep_for(kPollInterval);
  }
  return reports;
}

void DesyncDebugger::send_verdict(c10d::Store& store, const std::string& group, const std::vector<int>& ranks,
                                  const std::string& verdict) const {
  for (const int rank : ranks) put_question(store, rank, std::string(kVerdict) + group + "\n" + verdict);
}

std::optional<std::string> DesyncDebugger::verdict_of(const std::string& group) const {
  const std::lock_guard lock(mutex_);
  const auto found = verdicts_.find(group);
  if (found == verdicts_.end()) return std::nullopt;
  return found->second;
}

// Keeps the first verdict, unless it is empty.
void DesyncDebugger::set_verdict(const std::string& group, const std::string& verdict) {
  const std::lock_guard lock(mutex_);
  std::string& known = verdicts_[group];
  if (known.empty()) known = verdict;
}

void DesyncDebugger::note_failure() {
  const std::lock_guard lock(mutex_);
  if (!first_failure_) first_failure_ = Clock::now();
}

std::optional<DesyncDebugger::Clock::time_point> DesyncDebugger::first_failure() const {
  const std::lock_guard lock(mutex_);
  return first_failure_;
}

}  // namespace ddp::detail
