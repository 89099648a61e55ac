// Who is named for a failed collective: the guilty rank, and never an innocent one.
#include "comm/blame.h"

#include <gmock/gmock.h>

namespace ddp::detail {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
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

TEST(Blame, a_rank_that_does_not_answer_is_named) {
  EXPECT_EQ(
      blame({state(Kind::kFailed, {ended(6), waiting(7)}), state(Kind::kSilent), state(Kind::kAnswered, {waiting(7)})},
            7),
      "; did not take part in it: rank 1 (no answer: killed, stopped or cut off)");
}

TEST(Blame, a_living_rank_one_collective_behind_or_ahead_is_not_named_beside_a_dead_one) {
  const std::string text = blame({state(Kind::kFailed, {ended(6), waiting(7)}), state(Kind::kAnswered, {waiting(6)}),
                                  state(Kind::kSilent), state(Kind::kFailed, {ended(7), waiting(8)})},
                                 7);
  EXPECT_EQ(text, "; did not take part in it: rank 2 (no answer: killed, stopped or cut off)");
}

TEST(Blame, a_rank_that_waits_elsewhere_or_has_failed_is_a_victim) {
  EXPECT_EQ(blame({state(Kind::kFailed, {waiting(7)}), state(Kind::kAnswered, {waiting(6)}),
                   state(Kind::kFailed, {waiting(6)})},
                  7),
            "");
}

TEST(Blame, a_rank_that_gave_up_is_named_wherever_it_was) {
  for (const uint64_t last : {5, 6, 7}) {
    EXPECT_THAT(
        blame({state(Kind::kFailed, {waiting(6)}), state(Kind::kGaveUp, {ended(last)}), state(Kind::kFailed)}, 6),
        HasSubstr("; did not take part in it: rank 1 (it gave up before"));
  }
}

TEST(Blame, a_rank_that_closed_its_group_is_named_only_when_it_missed_the_collective) {
  EXPECT_THAT(blame({state(Kind::kFailed, {waiting(6)}), state(Kind::kClosed, {ended(5)})}, 6),
              HasSubstr("did not take part in it: rank 1 (it has closed its group)"));
  EXPECT_EQ(blame({state(Kind::kFailed, {waiting(6)}), state(Kind::kClosed, {ended(6)})}, 6), "");
}

TEST(Blame, the_minority_that_called_something_else_in_the_same_place_is_named) {
  const CallRecord bucket = waiting(41);
  const CallRecord buffers = waiting(41, "broadcast (root 0) of Float [8]");
  const std::string text =
      blame({state(Kind::kFailed, {ended(40), bucket}), state(Kind::kAnswered, {ended(40), bucket}),
             state(Kind::kAnswered, {ended(40), buffers})},
            41);
  EXPECT_EQ(
      text,
      "; the ranks disagree at number 41: rank 2 called broadcast (root 0) of Float [8], the others all_reduce of "
      "a gradient bucket of 332 bytes");
}

TEST(Blame, ranks_that_have_not_come_there_yet_do_not_count_for_the_majority) {
  const CallRecord bucket = waiting(12);
  const CallRecord statistics = waiting(12, "all_reduce (sum) of Double [2, 8]");
  EXPECT_EQ(
      blame({state(Kind::kAnswered, {ended(11)}), state(Kind::kFailed, {ended(11), bucket}),
             state(Kind::kAnswered, {ended(11), statistics}), state(Kind::kAnswered, {ended(11), bucket})},
            12),
      "; the ranks disagree at number 12: rank 2 called all_reduce (sum) of Double [2, 8], the others all_reduce of "
      "a gradient bucket of 332 bytes");
}

TEST(Blame, is_undecided_while_a_rank_that_lives_has_not_come_to_where_the_others_disagree) {
  const RankState bucket = state(Kind::kFailed, {ended(11), waiting(12)});
  const RankState statistics = state(Kind::kAnswered, {ended(11), waiting(12, "all_reduce (sum) of Double [2, 8]")});
  const RankState on_its_way = state(Kind::kAnswered, {ended(11)});
  EXPECT_TRUE(is_undecided_yet({bucket, statistics, on_its_way}));
  EXPECT_FALSE(is_undecided_yet({bucket, statistics, bucket}));
  EXPECT_FALSE(is_undecided_yet({bucket, statistics}));
  EXPECT_FALSE(is_undecided_yet({bucket, statistics, state(Kind::kSilent, {})}));
  EXPECT_FALSE(is_undecided_yet({bucket, bucket, on_its_way}));
}

TEST(Blame, without_a_majority_all_are_listed) {
  EXPECT_EQ(
      blame({state(Kind::kFailed, {waiting(3)}), state(Kind::kAnswered, {waiting(3, "barrier")})}, 3),
      "; the ranks disagree at number 3: rank 0 called all_reduce of a gradient bucket of 332 bytes, rank 1 called "
      "barrier");
}

TEST(Blame, the_first_difference_counts) {
  const std::string text = blame({state(Kind::kFailed, {ended(3, "a"), ended(4, "b"), waiting(5, "a")}),
                                  state(Kind::kFailed, {ended(3, "a"), ended(4, "b"), waiting(5, "a")}),
                                  state(Kind::kAnswered, {ended(3, "a"), ended(4, "a"), waiting(5, "b")})},
                                 5);
  EXPECT_THAT(text, AllOf(HasSubstr("at number 4: rank 2 called a, the others b"), Not(HasSubstr("rank 0"))));
}

TEST(Blame, a_rank_that_does_something_else_is_named_with_what_it_did_last) {
  RankState busy = state(Kind::kAnswered, {ended(5)});
  busy.report.since_last = std::chrono::milliseconds(5200);
  const std::string text = blame({state(Kind::kFailed, {ended(5), waiting(6)}), busy}, 6);
  EXPECT_THAT(text, AllOf(HasSubstr("did not take part in it: rank 1 (it lives"), HasSubstr("5.2 s"),
                          HasSubstr("number 5, all_reduce of a gradient bucket")));
}

TEST(Blame, a_rank_that_is_on_its_way_is_not_named_beside_one_that_stays_away) {
  RankState away = state(Kind::kAnswered, {ended(5)});
  away.report.since_last = std::chrono::milliseconds(5200);
  RankState on_its_way = state(Kind::kAnswered, {ended(5)});
  on_its_way.report.since_last = std::chrono::milliseconds(300);
  EXPECT_THAT(blame({state(Kind::kFailed, {ended(5), waiting(6)}), on_its_way, away}, 6),
              AllOf(HasSubstr("rank 2 (it lives"), Not(HasSubstr("rank 1"))));
}

TEST(Blame, ranks_that_cannot_be_asked_are_never_named) {
  EXPECT_EQ(blame({state(Kind::kFailed, {waiting(6)}), state(Kind::kUnknown)}, 6), "");
}

TEST(BlameForConnecting, who_died_or_gave_up_is_named_before_who_has_not_come) {
  EXPECT_EQ(blame_for_connecting({state(Kind::kFailed), state(Kind::kSilent), state(Kind::kNeverArrived)}),
            "; did not take part in it: rank 1 (no answer: killed, stopped or cut off)");
  EXPECT_THAT(blame_for_connecting({state(Kind::kFailed), state(Kind::kGaveUp), state(Kind::kNeverArrived)}),
              HasSubstr("rank 1 (it gave up before"));
  EXPECT_EQ(blame_for_connecting({state(Kind::kNeverArrived), state(Kind::kFailed), state(Kind::kNeverArrived)}),
            "; never arrived: rank 0, 2");
}

TEST(BlameForConnecting, ranks_that_live_fail_or_run_python_are_not_named) {
  EXPECT_EQ(blame_for_connecting({state(Kind::kFailed), state(Kind::kAnswered), state(Kind::kUnknown)}), "");
}

TEST(CallLog, tells_what_was_called_and_what_has_ended) {
  CallLog log;
  log.begin(0, "barrier");
  log.begin(1, "all_reduce (sum) of Float [4]");
  log.end(0);
  EXPECT_THAT(log.report().calls,
              testing::ElementsAre(ended(0, "barrier"), waiting(1, "all_reduce (sum) of Float [4]")));
}

TEST(CallLog, keeps_a_bounded_number) {
  CallLog log;
  for (uint64_t number = 0; number < 1000; ++number) log.begin(number, "barrier");
  EXPECT_EQ(log.report().calls.size(), CallLog::kKept);
  EXPECT_EQ(log.report().calls.back().number, 999U);
}

TEST(RankReport, comes_back_from_its_text) {
  const RankReport report{.calls = {ended(3, "a b c"), waiting(4, "")}, .since_last = std::chrono::milliseconds(12)};
  EXPECT_EQ(report_from(to_text(report)), report);
  EXPECT_EQ(report_from(to_text(RankReport{})), RankReport{});
  EXPECT_THROW(report_from("nonsense"), std::invalid_argument);
}

}  // namespace
}  // namespace ddp::detail
