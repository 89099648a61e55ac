// Who is named for a failed collective: the guilty rank, and never an innocent one.
#include "comm/core/blame.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp::detail {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::ElementsAre;
using Kind = RankState::Kind;

CallRecord ended(uint64_t number, std::string signature = "all_reduce of a gradient bucket of 332 bytes") {
  return {.number = number, .ended = true, .signature = std::move(signature)};
}

CallRecord waiting(uint64_t number, std::string signature = "all_reduce of a gradient bucket of 332 bytes") {
  return {.number = number, .ended = false, .signature = std::move(signature)};
}

RankState state(Kind kind, std::vector<CallRecord> calls = {}) {
  return {.kind = kind, .report = {.calls = std::move(calls)}};
}

TEST_CASE("Blame: a rank that does not answer is named") {
  CHECK(
      blame({state(Kind::kFailed, {ended(6), waiting(7)}), state(Kind::kSilent), state(Kind::kAnswered, {waiting(7)})},
            7) == "; did not take part in it: rank 1 (no answer: killed, stopped or cut off)");
}

TEST_CASE("Blame: a living rank one collective behind or ahead is not named beside a dead one") {
  const std::string text = blame({state(Kind::kFailed, {ended(6), waiting(7)}), state(Kind::kAnswered, {waiting(6)}),
                                  state(Kind::kSilent), state(Kind::kFailed, {ended(7), waiting(8)})},
                                 7);
  CHECK(text == "; did not take part in it: rank 2 (no answer: killed, stopped or cut off)");
}

TEST_CASE("Blame: a rank that waits elsewhere or has failed is a victim") {
  CHECK(blame({state(Kind::kFailed, {waiting(7)}), state(Kind::kAnswered, {waiting(6)}),
               state(Kind::kFailed, {waiting(6)})},
              7) == "");
}

TEST_CASE("Blame: a rank that gave up is named wherever it was") {
  for (const uint64_t last : {5, 6, 7}) {
    CHECK_THAT(
        blame({state(Kind::kFailed, {waiting(6)}), state(Kind::kGaveUp, {ended(last)}), state(Kind::kFailed)}, 6),
        ContainsSubstring("; did not take part in it: rank 1 (it gave up before"));
  }
}

TEST_CASE("Blame: a rank that closed its group is named only when it missed the collective") {
  CHECK_THAT(blame({state(Kind::kFailed, {waiting(6)}), state(Kind::kClosed, {ended(5)})}, 6),
             ContainsSubstring("did not take part in it: rank 1 (it has closed its group)"));
  CHECK(blame({state(Kind::kFailed, {waiting(6)}), state(Kind::kClosed, {ended(6)})}, 6) == "");
}

TEST_CASE("Blame: the minority that called something else in the same place is named") {
  const CallRecord bucket = waiting(41);
  const CallRecord buffers = waiting(41, "broadcast (root 0) of Float [8]");
  const std::string text =
      blame({state(Kind::kFailed, {ended(40), bucket}), state(Kind::kAnswered, {ended(40), bucket}),
             state(Kind::kAnswered, {ended(40), buffers})},
            41);
  CHECK(text ==
        "; the ranks disagree at number 41: rank 2 called broadcast (root 0) of Float [8], the others all_reduce of "
        "a gradient bucket of 332 bytes");
}

TEST_CASE("Blame: ranks that have not come there yet do not count for the majority") {
  const CallRecord bucket = waiting(12);
  const CallRecord statistics = waiting(12, "all_reduce (sum) of Double [2, 8]");
  CHECK(blame({state(Kind::kAnswered, {ended(11)}), state(Kind::kFailed, {ended(11), bucket}),
               state(Kind::kAnswered, {ended(11), statistics}), state(Kind::kAnswered, {ended(11), bucket})},
              12) ==
        "; the ranks disagree at number 12: rank 2 called all_reduce (sum) of Double [2, 8], the others all_reduce of "
        "a gradient bucket of 332 bytes");
}

TEST_CASE("Blame: is undecided while a rank that lives has not come to where the others disagree") {
  const RankState bucket = state(Kind::kFailed, {ended(11), waiting(12)});
  const RankState statistics = state(Kind::kAnswered, {ended(11), waiting(12, "all_reduce (sum) of Double [2, 8]")});
  const RankState on_its_way = state(Kind::kAnswered, {ended(11)});
  CHECK(is_undecided_yet({bucket, statistics, on_its_way}));
  CHECK_FALSE(is_undecided_yet({bucket, statistics, bucket}));
  CHECK_FALSE(is_undecided_yet({bucket, statistics}));
  CHECK_FALSE(is_undecided_yet({bucket, statistics, state(Kind::kSilent, {})}));
  CHECK_FALSE(is_undecided_yet({bucket, bucket, on_its_way}));
}

TEST_CASE("Blame: without a majority all are listed") {
  CHECK(blame({state(Kind::kFailed, {waiting(3)}), state(Kind::kAnswered, {waiting(3, "barrier")})}, 3) ==
        "; the ranks disagree at number 3: rank 0 called all_reduce of a gradient bucket of 332 bytes, rank 1 called "
        "barrier");
}

TEST_CASE("Blame: the first difference counts") {
  const std::string text = blame({state(Kind::kFailed, {ended(3, "a"), ended(4, "b"), waiting(5, "a")}),
                                  state(Kind::kFailed, {ended(3, "a"), ended(4, "b"), waiting(5, "a")}),
                                  state(Kind::kAnswered, {ended(3, "a"), ended(4, "a"), waiting(5, "b")})},
                                 5);
  CHECK_THAT(text, ContainsSubstring("at number 4: rank 2 called a, the others b") && !ContainsSubstring("rank 0"));
}

TEST_CASE("Blame: a rank that does something else is named with what it did last") {
  RankState busy = state(Kind::kAnswered, {ended(5)});
  busy.report.since_last = std::chrono::milliseconds(5200);
  const std::string text = blame({state(Kind::kFailed, {ended(5), waiting(6)}), busy}, 6);
  CHECK_THAT(text, ContainsSubstring("did not take part in it: rank 1 (it lives") && ContainsSubstring("5.2 s") &&
                       ContainsSubstring("number 5, all_reduce of a gradient bucket"));
}

TEST_CASE("Blame: a rank that is on its way is not named beside one that stays away") {
  RankState away = state(Kind::kAnswered, {ended(5)});
  away.report.since_last = std::chrono::milliseconds(5200);
  RankState on_its_way = state(Kind::kAnswered, {ended(5)});
  on_its_way.report.since_last = std::chrono::milliseconds(300);
  CHECK_THAT(blame({state(Kind::kFailed, {ended(5), waiting(6)}), on_its_way, away}, 6),
             ContainsSubstring("rank 2 (it lives") && !ContainsSubstring("rank 1"));
}

TEST_CASE("Blame: ranks that cannot be asked are never named") {
  CHECK(blame({state(Kind::kFailed, {waiting(6)}), state(Kind::kUnknown)}, 6) == "");
}

TEST_CASE("BlameForConnecting: who died or gave up is named before who has not come") {
  CHECK(blame_for_connecting({state(Kind::kFailed), state(Kind::kSilent), state(Kind::kNeverArrived)}) ==
        "; did not take part in it: rank 1 (no answer: killed, stopped or cut off)");
  CHECK_THAT(blame_for_connecting({state(Kind::kFailed), state(Kind::kGaveUp), state(Kind::kNeverArrived)}),
             ContainsSubstring("rank 1 (it gave up before"));
  CHECK(blame_for_connecting({state(Kind::kNeverArrived), state(Kind::kFailed), state(Kind::kNeverArrived)}) ==
        "; never arrived: rank 0, 2");
}

TEST_CASE("BlameForConnecting: ranks that live fail or run Python are not named") {
  CHECK(blame_for_connecting({state(Kind::kFailed), state(Kind::kAnswered), state(Kind::kUnknown)}) == "");
}

TEST_CASE("CallLog: tells what was called and what has ended") {
  CallLog log;
  log.begin(0, "barrier");
  log.begin(1, "all_reduce (sum) of Float [4]");
  log.end(0);
  CHECK_THAT(log.report().calls, ElementsAre(ended(0, "barrier"), waiting(1, "all_reduce (sum) of Float [4]")));
}

TEST_CASE("CallLog: keeps a bounded number") {
  CallLog log;
  for (uint64_t number = 0; number < 1000; ++number) log.begin(number, "barrier");
  CHECK(log.report().calls.size() == CallLog::kKept);
  CHECK(log.report().calls.back().number == 999U);
}

TEST_CASE("RankReport: comes back from its text") {
  const RankReport report{.calls = {ended(3, "a b c"), waiting(4, "")}, .since_last = std::chrono::milliseconds(12)};
  CHECK(report_from(to_text(report)) == report);
  CHECK(report_from(to_text(RankReport{})) == RankReport{});
  CHECK_THROWS_AS(report_from("nonsense"), std::invalid_argument);
}

}  // namespace
}  // namespace ddp::detail
