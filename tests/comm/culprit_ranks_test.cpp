// Who is named for a failed collective: the guilty rank, and never an innocent one.
#include "comm/core/culprit_ranks.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp::detail {
namespace {

using Catch::Matchers::ContainsSubstring;
using StateKind = RankState::Kind;

CallRecord ended(uint64_t number, std::string signature = "all_reduce of a gradient bucket of 332 bytes") {
  return {.number = number, .ended = true, .signature = std::move(signature)};
}

CallRecord waiting(uint64_t number, std::string signature = "all_reduce of a gradient bucket of 332 bytes") {
  return {.number = number, .ended = false, .signature = std::move(signature)};
}

RankState state(StateKind kind, std::vector<CallRecord> calls = {}) {
  return {.kind = kind, .report = {.calls = std::move(calls)}};
}

TEST_CASE("CulpritRanks: a rank that does not answer is named") {
  CHECK(culprits_text({state(StateKind::kFailed, {ended(6), waiting(7)}), state(StateKind::kSilent),
                       state(StateKind::kAnswered, {waiting(7)})},
                      7) == "; did not take part in it: rank 1 (no answer: ended, stopped or unreachable)");
}

TEST_CASE("CulpritRanks: a living rank one collective behind or ahead is not named beside a dead one") {
  const std::string text =
      culprits_text({state(StateKind::kFailed, {ended(6), waiting(7)}), state(StateKind::kAnswered, {waiting(6)}),
                     state(StateKind::kSilent), state(StateKind::kFailed, {ended(7), waiting(8)})},
                    7);
  CHECK(text == "; did not take part in it: rank 2 (no answer: ended, stopped or unreachable)");
}

TEST_CASE("CulpritRanks: a rank that waits elsewhere or has failed is a victim") {
  CHECK(culprits_text({state(StateKind::kFailed, {waiting(7)}), state(StateKind::kAnswered, {waiting(6)}),
                       state(StateKind::kFailed, {waiting(6)})},
                      7) == "");
}

TEST_CASE("CulpritRanks: a rank that gave up is named wherever it was") {
  for (const uint64_t last : {5, 6, 7}) {
    CHECK_THAT(culprits_text({state(StateKind::kFailed, {waiting(6)}), state(StateKind::kLeftOnError, {ended(last)}),
                              state(StateKind::kFailed)},
                             6),
               ContainsSubstring("; did not take part in it: rank 1 (it stopped earlier"));
  }
}

TEST_CASE("CulpritRanks: a rank that closed its group is named only when it missed the collective") {
  CHECK_THAT(culprits_text({state(StateKind::kFailed, {waiting(6)}), state(StateKind::kClosed, {ended(5)})}, 6),
             ContainsSubstring("did not take part in it: rank 1 (it has closed its group)"));
  CHECK(culprits_text({state(StateKind::kFailed, {waiting(6)}), state(StateKind::kClosed, {ended(6)})}, 6) == "");
}

TEST_CASE("CulpritRanks: the minority that called something else in the same place is named") {
  const CallRecord bucket = waiting(41);
  const CallRecord buffers = waiting(41, "broadcast (root 0) of Float [8]");
  const std::string text =
      culprits_text({state(StateKind::kFailed, {ended(40), bucket}), state(StateKind::kAnswered, {ended(40), bucket}),
                     state(StateKind::kAnswered, {ended(40), buffers})},
                    41);
  CHECK(
      text ==
      "; the ranks disagree on call number 41: rank 2 called broadcast (root 0) of Float [8], the others all_reduce of "
      "a gradient bucket of 332 bytes");
}

TEST_CASE("CulpritRanks: ranks that have not come there yet do not count for the majority") {
  const CallRecord bucket = waiting(12);
  const CallRecord statistics = waiting(12, "all_reduce (sum) of Double [2, 8]");
  CHECK(culprits_text(
            {state(StateKind::kAnswered, {ended(11)}), state(StateKind::kFailed, {ended(11), bucket}),
             state(StateKind::kAnswered, {ended(11), statistics}), state(StateKind::kAnswered, {ended(11), bucket})},
            12) ==
        "; the ranks disagree on call number 12: rank 2 called all_reduce (sum) of Double [2, 8], the others "
        "all_reduce of "
        "a gradient bucket of 332 bytes");
}

TEST_CASE("CulpritRanks: is undecided while a rank that lives has not come to where the others disagree") {
  const RankState bucket = state(StateKind::kFailed, {ended(11), waiting(12)});
  const RankState statistics =
      state(StateKind::kAnswered, {ended(11), waiting(12, "all_reduce (sum) of Double [2, 8]")});
  const RankState on_its_way = state(StateKind::kAnswered, {ended(11)});
  CHECK(is_undecided({bucket, statistics, on_its_way}));
  CHECK_FALSE(is_undecided({bucket, statistics, bucket}));
  CHECK_FALSE(is_undecided({bucket, statistics}));
  CHECK_FALSE(is_undecided({bucket, statistics, state(StateKind::kSilent, {})}));
  CHECK_FALSE(is_undecided({bucket, bucket, on_its_way}));
}

TEST_CASE("CulpritRanks: without a majority all are listed") {
  CHECK(culprits_text({state(StateKind::kFailed, {waiting(3)}), state(StateKind::kAnswered, {waiting(3, "barrier")})},
                      3) ==
        "; the ranks disagree on call number 3: rank 0 called all_reduce of a gradient bucket of 332 bytes, rank 1 "
        "called "
        "barrier");
}

TEST_CASE("CulpritRanks: the first difference counts") {
  const std::string text = culprits_text({state(StateKind::kFailed, {ended(3, "a"), ended(4, "b"), waiting(5, "a")}),
                                          state(StateKind::kFailed, {ended(3, "a"), ended(4, "b"), waiting(5, "a")}),
                                          state(StateKind::kAnswered, {ended(3, "a"), ended(4, "a"), waiting(5, "b")})},
                                         5);
  CHECK_THAT(text,
             ContainsSubstring("on call number 4: rank 2 called a, the others b") && !ContainsSubstring("rank 0"));
}

TEST_CASE("CulpritRanks: a rank that does something else is named with what it did last") {
  RankState busy = state(StateKind::kAnswered, {ended(5)});
  busy.report.since_last = std::chrono::milliseconds(5200);
  const std::string text = culprits_text({state(StateKind::kFailed, {ended(5), waiting(6)}), busy}, 6);
  CHECK_THAT(text, ContainsSubstring("did not take part in it: rank 1 (it is running") && ContainsSubstring("5.2 s") &&
                       ContainsSubstring("number 5, all_reduce of a gradient bucket"));
}

TEST_CASE("CulpritRanks: a rank that is on its way is not named beside one that stays away") {
  RankState away = state(StateKind::kAnswered, {ended(5)});
  away.report.since_last = std::chrono::milliseconds(5200);
  RankState on_its_way = state(StateKind::kAnswered, {ended(5)});
  on_its_way.report.since_last = std::chrono::milliseconds(300);
  CHECK_THAT(culprits_text({state(StateKind::kFailed, {ended(5), waiting(6)}), on_its_way, away}, 6),
             ContainsSubstring("rank 2 (it is running") && !ContainsSubstring("rank 1"));
}

TEST_CASE("CulpritRanks: ranks that cannot be asked are never named") {
  CHECK(culprits_text({state(StateKind::kFailed, {waiting(6)}), state(StateKind::kUnknown)}, 6) == "");
}

TEST_CASE("ConnectCulprits: who died or gave up is named before who has not come") {
  CHECK(
      connect_culprits_text({state(StateKind::kFailed), state(StateKind::kSilent), state(StateKind::kNeverArrived)}) ==
      "; did not take part in it: rank 1 (no answer: ended, stopped or unreachable)");
  CHECK_THAT(connect_culprits_text(
                 {state(StateKind::kFailed), state(StateKind::kLeftOnError), state(StateKind::kNeverArrived)}),
             ContainsSubstring("rank 1 (it stopped earlier"));
  CHECK(connect_culprits_text({state(StateKind::kNeverArrived), state(StateKind::kFailed),
                               state(StateKind::kNeverArrived)}) == "; never arrived: rank 0, 2");
}

TEST_CASE("ConnectCulprits: ranks that live fail or run Python are not named") {
  CHECK(connect_culprits_text({state(StateKind::kFailed), state(StateKind::kAnswered), state(StateKind::kUnknown)}) ==
        "");
}

// A job of `size` ranks that all wait in collective 6, as the others see it.
std::vector<RankState> all_waiting(size_t size) {
  return std::vector<RankState>(size, state(StateKind::kAnswered, {ended(5), waiting(6)}));
}

TEST_CASE("CulpritRanks: whoever is the one that is gone is the one that is named") {
  for (size_t size = 2; size <= 9; ++size) {
    for (size_t guilty = 0; guilty < size; ++guilty) {
      INFO("rank " << guilty << " of " << size);
      const std::string name = "; did not take part in it: rank " + std::to_string(guilty) + " (";
      auto ranks = all_waiting(size);
      ranks[guilty] = state(StateKind::kSilent);
      CHECK(culprits_text(ranks, 6) == name + "no answer: ended, stopped or unreachable)");
      ranks[guilty] = state(StateKind::kLeftOnError, {ended(5)});
      CHECK(culprits_text(ranks, 6) == name + "it stopped earlier because of its own error)");
      ranks[guilty] = state(StateKind::kClosed, {ended(5)});
      CHECK(culprits_text(ranks, 6) == name + "it has closed its group)");
      ranks[guilty] = state(StateKind::kUnknown);
      CHECK(culprits_text(ranks, 6) == "");
    }
  }
}

TEST_CASE("CulpritRanks: where all wait in the same collective nobody is named") {
  for (const size_t size : {1U, 2U, 7U, 64U}) CHECK(culprits_text(all_waiting(size), 6) == "");
  CHECK(culprits_text({}, 6) == "");
  CHECK_FALSE(is_undecided({}));
  CHECK(connect_culprits_text({}) == "");
}

TEST_CASE("CulpritRanks: several that are gone are named together, in order") {
  auto ranks = all_waiting(5);
  ranks[3] = ranks[1] = ranks[4] = state(StateKind::kSilent);
  CHECK(culprits_text(ranks, 6) ==
        "; did not take part in it: rank 1, 3, 4 (no answer: ended, stopped or unreachable)");
}

TEST_CASE("CulpritRanks: a rank that gave up explains one that is silent, which then followed it") {
  auto ranks = all_waiting(4);
  ranks[1] = state(StateKind::kSilent);
  ranks[2] = state(StateKind::kLeftOnError);
  CHECK_THAT(culprits_text(ranks, 6), ContainsSubstring("rank 2 (it stopped earlier") && !ContainsSubstring("rank 1"));
}

TEST_CASE("CulpritRanks: any minority is named with what it called") {
  for (size_t size = 3; size <= 8; ++size) {
    for (size_t odd = 0; odd < size; ++odd) {
      auto ranks = all_waiting(size);
      ranks[odd] = state(StateKind::kFailed, {ended(5), waiting(6, "barrier")});
      INFO("rank " << odd << " of " << size);
      CHECK(culprits_text(ranks, 6) == "; the ranks disagree on call number 6: rank " + std::to_string(odd) +
                                           " called barrier, the others all_reduce of a gradient bucket of 332 bytes");
      CHECK_FALSE(is_undecided(ranks));
    }
  }
}

TEST_CASE("CulpritRanks: of three opinions without a majority, all are reported") {
  const std::vector<RankState> ranks{
      state(StateKind::kFailed, {waiting(6, "a")}), state(StateKind::kFailed, {waiting(6, "b")}),
      state(StateKind::kFailed, {waiting(6, "a")}), state(StateKind::kFailed, {waiting(6, "c")})};
  CHECK(culprits_text(ranks, 6) ==
        "; the ranks disagree on call number 6: rank 0, 2 called a, rank 1 called b, rank 3 called c");
}

TEST_CASE("CulpritRanks: that a call has ended makes no difference to what was called") {
  CHECK(culprits_text(
            {state(StateKind::kFailed, {ended(5), waiting(6)}), state(StateKind::kAnswered, {waiting(5), waiting(6)})},
            6) == "");
}

TEST_CASE("CulpritRanks: a rank in an earlier collective waits, and is not away") {
  auto ranks = all_waiting(3);
  ranks[1] = state(StateKind::kAnswered, {ended(4), waiting(5)});
  CHECK(culprits_text(ranks, 6) == "");
  UNSCOPED_INFO("but one that has left it is");
  ranks[1] = state(StateKind::kAnswered, {ended(4), ended(5)});
  CHECK_THAT(culprits_text(ranks, 6),
             ContainsSubstring("rank 1 (it is running") && ContainsSubstring("its last call was number 5, all_reduce"));
}

TEST_CASE("CulpritRanks: a rank that has called nothing yet is reported as such") {
  auto ranks = all_waiting(2);
  ranks[1] = state(StateKind::kAnswered);
  ranks[1].report.since_last = std::chrono::milliseconds(61'250);
  CHECK(culprits_text(ranks, 6) ==
        "; did not take part in it: rank 1 (it is running, but has been in no collective of this group for 61.2 "
        "s; it has not called any collective yet)");
}

TEST_CASE("CulpritRanks: all that are away for about as long are named") {
  auto ranks = all_waiting(4);
  const auto away = [&](size_t rank, int seconds) {
    ranks[rank] = state(StateKind::kAnswered, {ended(5)});
    ranks[rank].report.since_last = std::chrono::seconds(seconds);
  };
  away(0, 10);
  away(1, 5);
  away(2, 4);
  const std::string text = culprits_text(ranks, 6);
  CHECK_THAT(text, ContainsSubstring("rank 0 (") && ContainsSubstring("rank 1 (") && !ContainsSubstring("rank 2 ("));
}

TEST_CASE("ConnectCulprits: a rank that is connected or has closed is not named") {
  CHECK(connect_culprits_text({state(StateKind::kAnswered), state(StateKind::kClosed),
                               state(StateKind::kNeverArrived)}) == "; never arrived: rank 2");
  CHECK(connect_culprits_text({state(StateKind::kNeverArrived), state(StateKind::kAnswered),
                               state(StateKind::kNeverArrived)}) == "; never arrived: rank 0, 2");
}

}  // namespace
}  // namespace ddp::detail
