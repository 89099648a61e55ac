// What a rank says it has called: the log, and its way through the store as text.
#include "comm/core/call_log.h"

#include <algorithm>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/progress/own_page.h"
#include "base/progress/page_reader.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "tests/support/rank_checks.h"

namespace ddp::detail {
namespace {

using namespace std::chrono_literals;
using test::ElementsAre;

CallRecord open_call(uint64_t number, std::string signature) {
  return {.number = number, .ended = false, .signature = std::move(signature)};
}
CallRecord ended_call(uint64_t number, std::string signature) {
  return {.number = number, .ended = true, .signature = std::move(signature)};
}

// The page of this process.
std::vector<CollectiveRecord> in_page() {
  Page& page = own_page().page();
  page.greeting = kPageGreeting;  // as a launcher would
  return read_page(page)->collectives;
}
uint64_t waited_in(progress::Phase phase) {
  return own_page().page().waited[static_cast<size_t>(phase)].load();
}

TEST_CASE("CallLog: a message between two ranks stands in the page and not in what all ranks call") {
  CallLog log(own_page().add_group("", 0, 2, 0));
  log.begin(0, "barrier");
  const uint64_t message = log.begin_message("recv (from rank 1, tag 0) of Float [3]");
  CHECK(log.report().calls.size() == 1);
  REQUIRE(in_page().size() >= 2);
  CollectiveRecord last = in_page().back();
  CHECK(last.is_message);
  CHECK(last.is_open());
  CHECK(last.signature == "recv (from rank 1, tag 0) of Float [3]");
  log.end_message(message, page_clock());
  CHECK_FALSE(in_page().back().is_open());
}

TEST_CASE("CallLog: what a caller has waited for is time waited in the phase, what runs beside it is not") {
  CallLog log(own_page().add_group("", 0, 2, 0));
  const progress::PhaseScope phase(progress::Phase::kOptimizer);
  const uint64_t before = waited_in(progress::Phase::kOptimizer);
  log.begin(0, "all_reduce (sum) of Float [3]");
  log.end(0, page_clock() - 5000);
  const uint64_t waited = waited_in(progress::Phase::kOptimizer) - before;
  CHECK(waited >= 5000);
  log.begin(1, "all_reduce of a gradient bucket of 8 bytes", /*in_background=*/true);
  log.end(1);
  CHECK(waited_in(progress::Phase::kOptimizer) - before == waited);
}

TEST_CASE("CallLog: ranks that are threads tell nothing in the page of their process") {
  const auto before = in_page().size();
  CallLog log;
  log.begin(0, "barrier", /*in_background=*/true);
  log.end(0, 1);
  log.end_message(log.begin_message("send (to rank 1, tag 0) of Float [3]"), 1);
  CHECK(in_page().size() == before);
}

TEST_CASE("CallLog: is empty before the first call") {
  const CallLog log;
  CHECK(log.report().calls.empty());
  CHECK(log.report().since_last >= 0ms);
}

TEST_CASE("CallLog: tells what was called and what has ended") {
  CallLog log;
  log.begin(0, "barrier");
  log.begin(1, "all_reduce (sum) of Float [4]");
  log.end(0);
  CHECK_THAT(log.report().calls, ElementsAre(ended_call(0, "barrier"), open_call(1, "all_reduce (sum) of Float [4]")));
}

TEST_CASE("CallLog: counts by itself, whoever calls, and keeps what has a long text beside what has a short one") {
  CallLog log;
  const std::string text(300, 'x');
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) log.end(log.begin_next(k % 2 == 0 ? text : "short"));
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(log.begin_next("last") == 200U);
  const auto calls = log.report().calls;
  REQUIRE(calls.size() == CallLog::kHistorySize);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    REQUIRE(calls[i].number == 201 - CallLog::kHistorySize + i);
    REQUIRE(calls[i].ended == (calls[i].number < 200));
    const std::string& told = calls[i].signature;
    REQUIRE((calls[i].number == 200 ? told == "last" : told == text || told == "short"));
  }
}

TEST_CASE("CallLog: a call written down as ended has ended for whoever asks, until it turns out to last") {
  CallLog log(own_page().add_group("", 0, 2, 0));
  const CallShape of_two{.operation = "all_reduce", .how = "sum", .dimensions = 1, .sizes = {2}};
  const CallShape of_three{.operation = "all_reduce", .how = "sum", .dimensions = 1, .sizes = {3}};
  int written = 0;
  const auto now = CallLog::Clock::now();
  const auto begin = [&](const CallShape& shape, bool has_ended) {
    const auto write = [&](std::string& text) {
      ++written;
      text += "all_reduce of " + std::to_string(shape.sizes[0]);
    };
    return log.begin_next(now - 4ms, shape, write, has_ended);
  };
  begin(of_two, true);
  CHECK_THAT(log.report().calls, ElementsAre(ended_call(0, "all_reduce of 2")));
  CHECK_FALSE(in_page().back().is_open());
  auto late = begin(of_two, true);
  UNSCOPED_INFO("a text is written when the shape is another one");
  CHECK(written == 1);
  begin(of_three, true);
  log.reopen(late, now);
  UNSCOPED_INFO("with the exact time of its begin");
  const auto in_page_of = [&](uint64_t number) { return in_page().at(in_page().size() - 3 + number); };
  CHECK(in_page_of(1).begin == microseconds_of(now));
  CHECK(late.time == microseconds_of(now));
  CHECK(in_page_of(1).is_open());
  CHECK_FALSE(in_page_of(2).is_open());
  CHECK_THAT(log.report().calls, ElementsAre(ended_call(0, "all_reduce of 2"), open_call(1, "all_reduce of 2"),
                                             ended_call(2, "all_reduce of 3")));
  log.end(late.number, late.time);
  CHECK_FALSE(in_page_of(1).is_open());
  CHECK(log.report().calls.at(1).ended);
  const auto open = begin(of_two, false);
  CHECK(in_page().back().is_open());
  CHECK_FALSE(log.report().calls.back().ended);
  log.end(open.number);
  CHECK(log.report().calls.back().ended);
  CHECK(written == 3);
}

TEST_CASE("CallLog: what turns out to last when a thousand others have begun since leaves theirs alone") {
  CallLog log(own_page().add_group("", 0, 2, 0));
  const auto now = CallLog::Clock::now();
  auto late = log.begin_next(
      now, CallShape{.operation = "all_reduce"}, [](std::string& text) { text = "it"; }, true);
  for (size_t other = 0; other < kRingEntries; ++other) log.end(log.begin_next("barrier"));
  log.reopen(late, now + 1s);
  for (const CollectiveRecord& record : in_page()) CHECK_FALSE(record.is_open());
}

TEST_CASE("CallLog: a call ends in the page also when many others have begun since") {
  CallLog log(own_page().add_group("", 0, 2, 0));
  const uint64_t count = GENERATE(3 * CallLog::kHistorySize, 3 * kRingEntries);  // all of them open at once
  for (uint64_t number = 0; number < count; ++number) log.begin(number, "all_reduce");
  for (uint64_t number = 0; number < count; ++number) log.end(number);
  for (const CollectiveRecord& record : in_page()) {
    if (record.signature == "all_reduce") CHECK_FALSE(record.is_open());
  }
}

TEST_CASE("CallLog: a coarse clock does not go back behind the call before") {
  CallLog log(own_page().add_group("", 0, 2, 0));
  const auto now = CallLog::Clock::now();
  log.end(log.begin_next("broadcast"));
  log.begin_next(
      now - 4ms, CallShape{.operation = "all_reduce"}, [](std::string& text) { text = "it"; }, true);
  const auto records = in_page();
  REQUIRE(records.size() >= 2);
  CHECK(records.back().begin >= records[records.size() - 2].begin);
}

TEST_CASE("CallLog: keeps a bounded number") {
  CallLog log;
  for (uint64_t number = 0; number < 1000; ++number) log.begin(number, "barrier");
  CHECK(log.report().calls.size() == CallLog::kHistorySize);
  CHECK(log.report().calls.back().number == 999U);
}

TEST_CASE("RankReport: comes back from its text") {
  const RankReport report{.calls = {ended_call(3, "a b c"), open_call(4, "")},
                          .since_last = std::chrono::milliseconds(12)};
  CHECK(report_from(to_text(report)) == report);
  CHECK(report_from(to_text(RankReport{})) == RankReport{});
  CHECK_THROWS_AS(report_from("nonsense"), std::invalid_argument);
}

TEST_CASE("CallLog: calls end in any order, and only those that were named") {
  CallLog log;
  for (uint64_t number = 0; number < 4; ++number) log.begin(number, "call " + std::to_string(number));
  log.end(2);
  log.end(0);
  log.end(17);  // never begun
  CHECK_THAT(log.report().calls, ElementsAre(ended_call(0, "call 0"), open_call(1, "call 1"), ended_call(2, "call 2"),
                                             open_call(3, "call 3")));
  log.end(2);
  CHECK(log.report().calls.size() == 4U);
}

TEST_CASE("CallLog: keeps the last calls and drops the first") {
  CallLog log;
  for (uint64_t number = 0; number < CallLog::kHistorySize + 10; ++number) {
    log.begin(number, "barrier");
    log.end(number);
  }
  const auto calls = log.report().calls;
  REQUIRE(calls.size() == CallLog::kHistorySize);
  for (std::size_t i = 0; i < calls.size(); ++i) REQUIRE(calls[i] == ended_call(i + 10, "barrier"));
  log.end(3);  // dropped long ago
  CHECK(log.report().calls == calls);
}

TEST_CASE("CallLog: the time begins anew with each begin and each end") {
  CallLog log;
  // Waits on the log's own clock, not for a time that a busy machine may stretch.
  const auto wait_until_older_than = [&](std::chrono::milliseconds age) {
    while (log.report().since_last < age) std::this_thread::yield();
  };
  const auto is_new_after = [&](auto action) {
    wait_until_older_than(20ms);
    const auto before = std::chrono::steady_clock::now();
    action();
    const auto told = log.report().since_last;
    return told <= std::chrono::ceil<std::chrono::milliseconds>(std::chrono::steady_clock::now() - before);
  };
  CHECK(is_new_after([&] { log.begin(0, "barrier"); }));
  CHECK(is_new_after([&] { log.end(0); }));
}

TEST_CASE("CallLog: may be written by one thread while others read") {
  CallLog log;
  constexpr uint64_t kCalls = 2000;
  std::thread writing([&] {
    for (uint64_t number = 0; number < kCalls; ++number) {
      log.begin(number, "all_reduce (sum) of Float [" + std::to_string(number) + "]");
      log.end(number);
    }
  });
  std::vector<std::thread> reading;
  for (int i = 0; i < 2; ++i) {
    reading.emplace_back([&] {
      for (uint64_t last = 0; last + 1 < kCalls;) {
        const auto calls = log.report().calls;
        if (calls.empty()) continue;
        RANK_REQUIRE(calls.size() <= CallLog::kHistorySize);
        for (std::size_t k = 1; k < calls.size(); ++k) RANK_REQUIRE(calls[k].number == calls[k - 1].number + 1);
        RANK_REQUIRE(calls.back().number >= last);
        last = calls.back().number;
      }
    });
  }
  writing.join();
  for (std::thread& thread : reading) thread.join();
  test::report_rank_checks();
}

TEST_CASE("RankReport: any report comes back from its text") {
  std::mt19937_64 random(11);
  const std::string alphabet = "abc (),.[]'\"\\\t 019_-";
  for (int round = 0; round < 100; ++round) {
    RankReport report{.calls = {}, .since_last = std::chrono::milliseconds(random() % 100'000'000)};
    uint64_t number = random();
    for (uint64_t count = random() % 8; count > 0; --count) {
      std::string signature(random() % 40, ' ');
      for (char& c : signature) c = alphabet[random() % alphabet.size()];
      report.calls.push_back({.number = number++, .ended = random() % 2 == 0, .signature = signature});
    }
    REQUIRE(report_from(to_text(report)) == report);
  }
}

TEST_CASE("RankReport: numbers at their limits come back") {
  const RankReport report{.calls = {open_call(0, ""), ended_call(std::numeric_limits<uint64_t>::max(), " ")},
                          .since_last = std::chrono::milliseconds(std::numeric_limits<int64_t>::max())};
  CHECK(report_from(to_text(report)) == report);
}

TEST_CASE("RankReport: text that is none is refused") {
  for (const char* text : {"", " ", "\n", "x", "-", "99999999999999999999\n", "open barrier", "\0"}) {
    INFO("'" << text << "'");
    CHECK_THROWS_AS(report_from(text), std::invalid_argument);
  }
  UNSCOPED_INFO("and shown shortened");
  CHECK(test::error_of([] { report_from("x" + std::string(1 << 20, 'y')); }).size() < 200);
}

TEST_CASE("RankReport: of a text that is cut off the whole lines are kept") {
  const RankReport report{.calls = {ended_call(7, "barrier"), open_call(8, "all_reduce (sum) of Float [4]")},
                          .since_last = 1200ms};
  const std::string text = to_text(report);
  for (std::size_t size = 5; size < text.size(); ++size) {
    const RankReport read = report_from(text.substr(0, size));
    INFO("the first " << size << " bytes");
    CHECK(read.since_last == 1200ms);
    REQUIRE(read.calls.size() <= 2);
    if (!read.calls.empty()) CHECK(read.calls[0].number == 7);
  }
}

}  // namespace
}  // namespace ddp::detail
