#include <nlohmann/json.hpp>

#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/observe/watch/collective_text.h"
#include "launcher/observe/watch/flight_record.h"
#include "launcher/observe/watch/group_calls.h"
#include "launcher/observe/watch/hang_report.h"
#include "launcher/observe/watch/process_state.h"
#include "launcher/observe/watch/verdict.h"
#include "launcher/os/system/elf_symbols.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;
using ddp::detail::CollectiveRecord;
using Phase = ddp::progress::Phase;

constexpr std::uint64_t kNow = 1'000'000'000;

// A job of `size` ranks that are all in the collective with number `number`, since 121 s.
std::vector<RankView> job(int size, std::uint64_t number, const std::string& signature) {
  std::vector<RankView> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ddp::detail::ProgressSnapshot progress{.step = 812,
                                           .phase = Phase::kBackward,
                                           .phase_name = "backward",
                                           .phase_since = kNow - 121'000'000,
                                           .groups = {{.path = "", .rank = rank, .size = size, .leader = 0}},
                                           .collectives_begun = number + 1};
    for (std::uint64_t i = number > 3 ? number - 3 : 0; i <= number; ++i) {
      progress.collectives.push_back({.index = i, .number = i, .signature = signature, .begin = kNow - 121'000'000});
      if (i < number) progress.collectives.back().end = kNow - 120'000'000;
    }
    ranks.push_back(
        {.rank = rank, .host = "node", .pid = 100 + rank, .progress = progress, .process = ProcessState{.state = 'S'}});
  }
  return ranks;
}

// It has not come to the last one, and is in `phase`.
void hold(RankView& rank, Phase phase) {
  rank.progress->collectives.pop_back();
  rank.progress->phase = phase;
  rank.progress->phase_name = std::string(ddp::progress::name_of(phase));
}

TEST_CASE("Hang verdict: the rank that has not entered a collective is named, with its phase and who waits") {
  auto ranks = job(8, 4711, "all_reduce of a gradient bucket of 25000000 bytes");
  hold(ranks[3], Phase::kData);
  const Verdict verdict = diagnose_hang(ranks, kNow);
  CHECK(verdict.kind == Verdict::Kind::kMissing);
  CHECK(verdict.culprits == std::vector{3});
  CHECK(verdict.sentence ==
        "rank 3 has not entered all_reduce #4711 of 25.0 MB (step 812); it has been in data for 121 s; "
        "ranks 0-2 and 4-7 wait for it");
}

TEST_CASE("Hang verdict: a collective of fully_shard() is named with its unit") {
  auto ranks = job(2, 7, "all_gather (parameters of unit encoder.0) of Float [1000]");
  hold(ranks[1], Phase::kData);
  CHECK_THAT(diagnose_hang(ranks, kNow).sentence,
             ContainsSubstring("has not entered all_gather #7 of 4.0 kB (parameters of unit encoder.0) (step 812)"));
  const auto text = [](const std::string& how) {
    return collective_text({.number = 3, .signature = "reduce_scatter (" + how + ") of Float [2, 3]"},
                           {.path = "mesh.shard/"});
  };
  CHECK(text("avg, gradients of unit head without head.bias, head.scale") ==
        "reduce_scatter #3 of 24 bytes in mesh.shard (gradients of unit head without head.bias, head.scale)");
  CHECK(text("sum") == "reduce_scatter #3 of 24 bytes in mesh.shard");
}

TEST_CASE("Hang verdict: what the missing rank has under way in another group is said") {
  auto ranks = job(3, 12, "all_reduce (sum) of Float [2]");
  hold(ranks[1], Phase::kOther);
  ranks[1].progress->groups.push_back({.path = "python/group 1/", .rank = 1, .size = 3});
  ranks[1].progress->collectives.push_back({.index = 20, .number = 0, .group = 1, .signature = "barrier"});
  CHECK_THAT(diagnose_hang(ranks, kNow).sentence,
             ContainsSubstring("rank 1 has not entered all_reduce #12 of 8 bytes") &&
                 ContainsSubstring("between phases for 121 s, with barrier #0 in group 1 under way; ranks 0 and 2"));
}

// `rank` is in a message.
void exchange(RankView& rank, const std::string& signature) {
  rank.progress->collectives.pop_back();
  rank.progress->collectives.push_back({.index = 9, .number = 0, .signature = signature, .is_message = true});
}

TEST_CASE("Hang verdict: who does not answer a message is named") {
  auto ranks = job(3, 5, "barrier");
  for (int rank = 0; rank < 3; ++rank) hold(ranks[static_cast<std::size_t>(rank)], Phase::kForward);
  ranks[1].progress->collectives.push_back(
      {.index = 9, .number = 0, .signature = "recv (from rank 2, tag 7) of Float [6]", .is_message = true});
  const Verdict verdict = diagnose_hang(ranks, kNow);
  CHECK(verdict.kind == Verdict::Kind::kMissing);
  CHECK(verdict.culprits == std::vector{2});
  CHECK(verdict.waiter == 1);
  CHECK(verdict.sentence ==
        "rank 2 has not answered rank 1's recv from rank 2 of 24 bytes (step 812); it has been in forward for 121 s; "
        "rank 1 waits for it");
}

TEST_CASE("Hang verdict: ranks that both wait for a message of the other's wait in a circle") {
  auto ranks = job(2, 5, "barrier");
  exchange(ranks[0], "recv (from rank 1, tag 0) of Float [6]");
  exchange(ranks[1], "recv (from rank 0, tag 0) of Float [6]");
  const Verdict verdict = diagnose_hang(ranks, kNow);
  CHECK(verdict.kind == Verdict::Kind::kCycle);
  CHECK_THAT(verdict.sentence,
             ContainsSubstring("rank 0 is in recv from rank 1 of 24 bytes, which rank 1 has not answered"));
}

TEST_CASE("Hang verdict: a message that is answered is not a wait, one with another tag is") {
  auto ranks = job(2, 5, "barrier");
  exchange(ranks[0], "recv (from rank 1, tag 1) of Float [6]");
  exchange(ranks[1], "send (to rank 0, tag 1) of Float [6]");
  CHECK(diagnose_hang(ranks, kNow).kind == Verdict::Kind::kNoneWaits);
  exchange(ranks[1], "send (to rank 0, tag 2) of Float [6]");
  CHECK(diagnose_hang(ranks, kNow).kind == Verdict::Kind::kCycle);
}

TEST_CASE("Hang verdict: messages have no place in the order of the collectives") {
  auto ranks = job(2, 5, "all_reduce (sum) of Float [4]");
  ranks[0].progress->collectives.insert(
      ranks[0].progress->collectives.begin(),
      {.index = 0, .number = 4, .signature = "send (to rank 1, tag 0) of Float [2]", .end = kNow, .is_message = true});
  hold(ranks[1], Phase::kData);
  CHECK(diagnose_hang(ranks, kNow).culprits == std::vector{1});
  CHECK(divergence(ranks) != "");
}

TEST_CASE("Flight record: a message has PyTorch's name and a number of its own, beside the collectives") {
  auto ranks = job(2, 5, "barrier");
  exchange(ranks[0], "recv (from rank 1, tag 7) of Float [6]");
  const auto entries = flight_record(ranks[0], ranks, 0).at("entries");
  const auto& message = entries.back();
  CHECK(message.at("profiling_name") == "nccl:recv 0<-1");
  CHECK(message.at("is_p2p") == true);
  CHECK(message.at("p2p_seq_id") == 1);
  CHECK(message.at("collective_seq_id") == 0);
  CHECK(message.at("state") == "started");
  CHECK(message.at("input_sizes") == nlohmann::json::parse("[[6]]"));
  CHECK(entries.front().at("is_p2p") == false);
}

TEST_CASE("Hang verdict: a stopped process is named wherever it is") {
  auto ranks = job(4, 5, "barrier");
  ranks[2].process->state = 'T';
  const Verdict verdict = diagnose_hang(ranks, kNow);
  CHECK(verdict.kind == Verdict::Kind::kStopped);
  CHECK(verdict.culprits == std::vector{2});
  CHECK_THAT(verdict.sentence, ContainsSubstring("rank 2 is stopped by a signal"));
}

TEST_CASE("Hang verdict: a rank that has ended is named") {
  auto ranks = job(2, 7, "all_reduce (sum) of Float [4]");
  hold(ranks[1], Phase::kOther);
  ranks[1].ended = "exited with status 0";
  CHECK(diagnose_hang(ranks, kNow).sentence ==
        "rank 1 has not entered all_reduce #7 of 16 bytes (step 812); it has ended (exited with status 0); "
        "rank 0 waits for it");
}

TEST_CASE("Hang verdict: ranks that call different things are told apart, the fewer first") {
  auto ranks = job(3, 41, "all_reduce (sum) of Float [4]");
  ranks[2].progress->collectives.back().signature = "all_reduce (sum) of Float [5]";
  const Verdict verdict = diagnose_hang(ranks, kNow);
  CHECK(verdict.kind == Verdict::Kind::kDifferentCalls);
  CHECK(verdict.culprits == std::vector{2});
  CHECK(verdict.sentence ==
        "ranks have called different collectives as number 41; rank 2: all_reduce (sum) of Float [5]; "
        "ranks 0 and 1: all_reduce (sum) of Float [4]");
  CHECK(divergence(ranks) == verdict.sentence);
}

TEST_CASE("Hang verdict: who waits in a sub-group for a rank that waits elsewhere is not a cause") {
  // Rank 2 waits for rank 1 in a group of both; rank 1 waits for rank 0 in the job's.
  auto ranks = job(3, 5, "all_reduce (sum) of Float [4]");
  hold(ranks[0], Phase::kCheckpoint);
  for (int rank = 1; rank < 3; ++rank) {
    auto& progress = *ranks[static_cast<std::size_t>(rank)].progress;
    progress.groups.push_back({.path = "subgroup1/", .rank = rank - 1, .size = 2, .leader = 1});
  }
  ranks[2].progress->collectives.push_back({.index = 9, .number = 0, .group = 1, .signature = "barrier"});
  const Verdict verdict = diagnose_hang(ranks, kNow);
  CHECK(verdict.culprits == std::vector{0});
  CHECK_THAT(verdict.sentence, ContainsSubstring("it has been in checkpoint for 121 s"));
}

TEST_CASE("Hang verdict: ranks that wait for each other in two groups are all named") {
  auto ranks = job(2, 5, "barrier");
  ranks[0].progress->collectives.pop_back();
  for (auto& rank : ranks) rank.progress->groups.push_back({.path = "subgroup1/", .rank = rank.rank, .size = 2});
  ranks[0].progress->collectives.push_back({.index = 9, .number = 0, .group = 1, .signature = "barrier"});
  const Verdict verdict = diagnose_hang(ranks, kNow);
  CHECK(verdict.kind == Verdict::Kind::kCycle);
  CHECK(
      verdict.sentence ==
      "ranks 0 and 1 wait for each other; rank 1 is in barrier #5, which rank 0 has not entered; rank 0 is in barrier #0 "
      "in subgroup1, which rank 1 has not entered");
}

TEST_CASE("Hang verdict: who only waits for ranks in a circle is not in it") {
  auto ranks = job(6, 50, "all_reduce (sum) of Float [2]");
  ranks[3].progress->collectives.pop_back();
  ranks[3].progress->collectives.push_back(
      {.index = 9, .number = 0, .signature = "recv (from rank 4, tag 0) of Float [2]", .is_message = true});
  const Verdict verdict = diagnose_hang(ranks, kNow);
  CHECK(verdict.kind == Verdict::Kind::kCycle);
  CAPTURE(verdict.sentence);
  CHECK(verdict.culprits == std::vector{3, 4});
  CHECK(verdict.sentence.starts_with("ranks 3 and 4 wait for each other; "));
  CHECK_THAT(verdict.sentence, ContainsSubstring("rank 4 is in all_reduce #50"));
  CHECK_THAT(verdict.sentence, ContainsSubstring("rank 3 is in recv"));
  CHECK(verdict.sentence.ends_with("; ranks 0-2 and 5 wait for them"));
}

TEST_CASE("Hang verdict: a collective that all have entered is the network's or the backend's") {
  CHECK(diagnose_hang(job(4, 5, "barrier"), kNow).kind == Verdict::Kind::kUnfinished);
  CHECK(diagnose_hang(job(4, 5, "barrier"), kNow).culprits.empty());
}

TEST_CASE("Hang verdict: the ranks of one node say that somebody of another one is missing") {
  auto ranks = job(4, 5, "barrier");
  ranks.resize(2);
  CHECK_THAT(diagnose_hang(ranks, kNow).sentence,
             ContainsSubstring("the missing ranks are on a node that has not reported"));
}

TEST_CASE("Hang verdict: who waits for the others to close their group is not a cause") {
  auto ranks = job(2, 5, "barrier");
  for (auto& rank : ranks) rank.progress->collectives.back().end = kNow;
  ranks[0].progress->phase = Phase::kClosing;
  CHECK(diagnose_hang(ranks, kNow).culprits == std::vector{1});
  CHECK(diagnose_hang(ranks, kNow).waiter == 0);
}

// A job of which no rank is in a group yet, and all but `absent` wait at the store for the others.
std::vector<RankView> job_at_start(int size, int absent) {
  auto ranks = job(size, 0, "barrier");
  for (RankView& rank : ranks) {
    rank.progress->groups.clear();
    rank.progress->collectives.clear();
    rank.progress->phase = Phase::kStart;
    rank.progress->phase_name = "start";
    rank.at_store = rank.rank != absent;
  }
  return ranks;
}

TEST_CASE("Hang verdict: before training the rank that has not come to the store is named") {
  auto ranks = job_at_start(4, 2);
  const Verdict verdict = diagnose_hang(ranks, kNow);
  CHECK(verdict.kind == Verdict::Kind::kNotAtStore);
  CHECK(verdict.culprits == std::vector{2});
  CHECK(verdict.waiter == 0);
  CHECK(verdict.sentence ==
        "rank 2 has no connection to the job's store, where ranks 0, 1 and 3 wait for all to connect; it has been in "
        "start for 121 s");
  ranks[2].at_store.reset();
  ranks[2].ended = "exited with status 0";
  CHECK_THAT(diagnose_hang(ranks, kNow).sentence, ContainsSubstring("it has ended (exited with status 0)"));
  ranks[1].progress->groups = {{.path = "", .rank = 1, .size = 4}};  // it is over
  CHECK(diagnose_hang(ranks, kNow).kind == Verdict::Kind::kNoneWaits);
}

TEST_CASE("Hang verdict: of ranks without the library it is not said what they do at the store") {
  auto ranks = job_at_start(3, 0);
  for (RankView& rank : ranks) rank.progress.reset();
  CHECK(diagnose_hang(ranks, kNow).sentence ==
        "rank 0 has no connection to the job's store, which ranks 1 and 2 have; it reports nothing about itself");
  ranks[1].ended = "exited with status 0";  // it may have trained
  ranks[1].at_store.reset();
  CHECK(diagnose_hang(ranks, kNow).culprits == std::vector{0});
}

TEST_CASE("Hang verdict: where no rank is at the store, or all are, nobody is blamed for it") {
  CHECK(diagnose_hang(job_at_start(3, 7), kNow).kind == Verdict::Kind::kNoneWaits);
  auto ranks = job_at_start(3, 7);
  for (RankView& rank : ranks) rank.at_store = false;
  CHECK(diagnose_hang(ranks, kNow).kind == Verdict::Kind::kNoneWaits);
}

TEST_CASE("Hang verdict: of programs without the library is said that nothing is known") {
  const std::vector<RankView> ranks{{.rank = 0, .process = ProcessState{.state = 'S'}}};
  CHECK(diagnose_hang(ranks, kNow).kind == Verdict::Kind::kUnseen);
  CHECK_THAT(diagnose_hang(ranks, kNow).sentence,
             ContainsSubstring("nothing else is known about programs that do not use the library"));
}

// Ranks in Python that report nothing, and are where these say.
std::vector<RankView> python_job(const std::vector<PythonPlace>& places) {
  std::vector<RankView> ranks;
  for (const PythonPlace& place : places) {
    ranks.push_back({.rank = static_cast<int>(ranks.size()),
                     .process = ProcessState{.state = 'S', .waits_in = "futex_wait"},
                     .python = place});
  }
  return ranks;
}
const PythonPlace kReduces{.call = "all_reduce", .line = "main (train.py:20)"};
const PythonPlace kGathers{.call = "all_gather", .line = "main (train.py:22)"};
const PythonPlace kLoads{.call = "", .line = "load (train.py:7)"};

TEST_CASE("Hang verdict: of ranks in Python those are named that are in no collective while others are") {
  auto ranks = python_job({kReduces, kLoads, kReduces});
  const Verdict verdict = diagnose_hang(ranks, kNow);
  CHECK(verdict.kind == Verdict::Kind::kMissing);
  CHECK(verdict.culprits == std::vector{1});
  CHECK(verdict.waiter == 0);
  CHECK(verdict.sentence ==
        "rank 1 is sleeping in futex_wait at load (train.py:7); ranks 0 and 2 are in all_reduce at main (train.py:20), "
        "and "
        "wait for it");
  ranks[1].cpu_share = 0.9;
  CHECK_THAT(diagnose_hang(ranks, kNow).sentence, ContainsSubstring("rank 1 is running at load (train.py:7)"));
  ranks[1].ended = "exited with status 0";
  CHECK(diagnose_hang(ranks, kNow).culprits == std::vector{1});
  CHECK_THAT(diagnose_hang(ranks, kNow).sentence, ContainsSubstring("rank 1 has ended (exited with status 0)"));
}

TEST_CASE("Hang verdict: of ranks in Python those are named that are in another collective than most") {
  const Verdict verdict = diagnose_hang(python_job({kReduces, kReduces, kGathers}), kNow);
  CHECK(verdict.kind == Verdict::Kind::kDifferentCalls);
  CHECK(verdict.culprits == std::vector{2});
  CHECK(diagnose_hang(python_job({kReduces, kGathers}), kNow).culprits == std::vector{0, 1});
  const Verdict same = diagnose_hang(python_job({kReduces, kReduces}), kNow);
  CHECK(same.kind == Verdict::Kind::kUnfinished);
  CHECK(same.culprits.empty());
}

TEST_CASE("Hang verdict: where no rank in Python is in a collective, those are named that are elsewhere than most") {
  const PythonPlace other{.call = "", .line = "save (train.py:30)"};
  const Verdict verdict = diagnose_hang(python_job({kLoads, kLoads, other}), kNow);
  CHECK(verdict.kind == Verdict::Kind::kUnseen);
  CHECK(verdict.culprits == std::vector{2});
  CHECK(diagnose_hang(python_job({kLoads, kLoads}), kNow).culprits == std::vector{0, 1});
}

TEST_CASE("Hang verdict: of programs that nothing is known of those are named that do something else than most") {
  std::vector<RankView> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.push_back({.rank = rank, .process = ProcessState{.state = 'S', .waits_in = "pipe_read"}});
  ranks[2].process->waits_in = "hrtimer_nanosleep";
  const Verdict verdict = diagnose_hang(ranks, kNow);
  CHECK(verdict.culprits == std::vector{2});
  CHECK_THAT(verdict.sentence, ContainsSubstring("nothing else is known"));
}

TEST_CASE("Hang verdict: ranks in Python and in C++ number their collectives each on their own") {
  auto ranks = job(2, 5, "all_reduce of a gradient bucket of 332 bytes");
  for (const RankView& rank : job(2, 3, "all_reduce")) ranks.push_back(rank);
  for (int rank = 2; rank < 4; ++rank) {
    RankView& python = ranks[static_cast<std::size_t>(rank)];
    python.rank = rank;
    python.progress->groups = {{.path = "python/", .rank = rank, .size = 4, .leader = 0}};
  }
  CHECK(diagnose_hang(ranks, kNow).kind == Verdict::Kind::kUnfinished);
  hold(ranks[3], Phase::kData);
  const Verdict verdict = diagnose_hang(ranks, kNow);
  CHECK(verdict.culprits == std::vector{3});
  CHECK_THAT(verdict.sentence, ContainsSubstring("rank 3 has not entered all_reduce #3 (step 812)"));
}

TEST_CASE("Hang verdict: nothing diverges where all ranks have called the same") {
  CHECK(divergence(job(3, 5, "barrier")).empty());
  auto ranks = job(3, 5, "barrier");
  hold(ranks[1], Phase::kForward);
  CHECK(divergence(ranks) == "ranks 0 and 2 had entered barrier #5, and rank 1 had not");
}

TEST_CASE("Hang verdict: who was killed has entered the all-reduces that others have done") {
  auto ranks = job(2, 8, "all_reduce (sum) of Float [250]");
  for (int calls = 0; calls < 2; ++calls) hold(ranks[1], Phase::kForward);  // #7 is not written down
  CHECK(divergence(ranks) == "rank 0 had entered all_reduce #8 of 1.0 kB, and rank 1 had not");
  ranks = job(2, 8, "broadcast (root 0) of Float [250]");
  for (int calls = 0; calls < 2; ++calls) hold(ranks[1], Phase::kForward);
  UNSCOPED_INFO("a broadcast may be done on the root before the others have come");
  CHECK_THAT(divergence(ranks), ContainsSubstring("#7"));
}

TEST_CASE("Hang verdict: of a rank with more collectives than are kept is not said that it waits in none") {
  auto ranks = job(2, 5, "barrier");
  for (RankView& rank : ranks) hold(rank, Phase::kForward);
  CHECK_THAT(diagnose_hang(ranks, kNow).sentence, ContainsSubstring("no rank waits in a collective; "));
  ranks[1].progress->collectives_begun = 1001;
  CHECK_THAT(diagnose_hang(ranks, kNow).sentence,
             ContainsSubstring("no rank waits in one of its last 1000 collectives; "));
}

TEST_CASE("Hang report: a table of all ranks, then who is to blame, then stacks") {
  auto ranks = job(2, 5, "all_reduce (sum) of Float [250, 1000]");
  hold(ranks[1], Phase::kData);
  ranks[1].process->state = 'R';
  ranks[1].cpu_share = 0.996;
  CHECK(to_text({.verdict = diagnose_hang(ranks, kNow), .idle = std::chrono::microseconds(120'400'000), .views = ranks},
                {{1, "    #0 main (train+0x12)\n"}}, kNow) ==
        "ddprun: no rank has made progress for 120 s:\n"
        "  rank  host  phase     since  step  collective                     process\n"
        "  0     node  backward  121 s  812   in all_reduce #5 of 1.0 MB     sleeping\n"
        "  1     node  data      121 s  812   after all_reduce #4 of 1.0 MB  running, 100 % CPU\n"
        "ddprun: rank 1 has not entered all_reduce #5 of 1.0 MB (step 812); it has been in data for 121 s; rank 0 "
        "waits for it\n"
        "  stack of rank 1:\n    #0 main (train+0x12)\n");
}

TEST_CASE("Hang report: a rank that has ended is in no phase since any time, and the phase before the first is start") {
  auto ranks = job(3, 5, "all_reduce (sum) of Float [250, 1000]");
  ranks[1].ended = "exited with status 3";
  ranks[2].progress->phase = Phase::kStart;
  ranks[2].progress->phase_name = ddp::progress::name_of(Phase::kStart);
  CHECK(rank_table({ranks[1], ranks[2]}, kNow) ==
        "  rank  host  phase     since  step  collective                  process\n"
        "  1     node  backward         812   in all_reduce #5 of 1.0 MB  exited with status 3\n"
        "  2     node  start     121 s  812   in all_reduce #5 of 1.0 MB  sleeping\n");
}

TEST_CASE("Hang verdict: a newline in the name of a phase is a blank in both sentences") {
  auto ranks = job(2, 5, "all_reduce (sum) of Float [250, 1000]");
  hold(ranks[1], Phase::kUser);
  ranks[1].progress->phase_name = "a\nb";
  const Verdict verdict = diagnose_hang(ranks, kNow);
  CHECK_THAT(verdict.sentence, ContainsSubstring("it has been in a b for 121 s"));
  CHECK_THAT(verdict.lasting_sentence, ContainsSubstring("it has been in a b since "));
}

TEST_CASE("Hang verdict: the lasting sentence has clock times, in which the other has durations") {
  auto ranks = job(2, 5, "all_reduce (sum) of Float [250, 1000]");
  hold(ranks[1], Phase::kStart);
  ranks[1].progress->phase_name = ddp::progress::name_of(Phase::kStart);
  const Verdict verdict = diagnose_hang(ranks, kNow);
  CHECK_THAT(verdict.sentence, ContainsSubstring("; it has been in start for 121 s; rank 0 waits for it"));
  CHECK_THAT(verdict.lasting_sentence,
             Catch::Matchers::Matches(".*; it has been in start since ([0-9-]+ )?[0-9:]+; rank 0 waits for it"));
}

TEST_CASE("Collective text: what signatures say") {
  const CollectiveParts parts = parse_signature("reduce (sum, root 2) of BFloat16 [3, 0, 5]");
  CHECK(parts.name == "reduce");
  CHECK(parts.how == "sum, root 2");
  CHECK(parts.dtype == "BFloat16");
  CHECK(parts.sizes == std::vector<std::int64_t>{3, 0, 5});
  CHECK(parts.bytes == 0);
  CHECK(parse_signature("barrier").bytes == std::nullopt);
  CHECK(parse_signature("broadcast (root 0) of 3 tensors").bytes == std::nullopt);
  CHECK(parse_signature("").name.empty());
  CHECK(parse_signature("all_reduce (").name == "all_reduce");
  CHECK(parse_signature("all_reduce of Float []").bytes == 4);
  CHECK(bytes_text(999) == "999 bytes");
  CHECK(bytes_text(25'000'000) == "25.0 MB");
  CHECK(rank_ranges({0}) == "rank 0");
  CHECK(rank_ranges({7, 0, 1, 2, 4, 5}) == "ranks 0-2, 4, 5 and 7");
  CHECK(duration_text(7'500'000'000) == "2 h 5 min");
}

TEST_CASE("Process state: what the kernel's files say") {
  const std::string stat =
      "12 (a) b) T 1 12 12 0 -1 4194304 90 0 0 0 150 50 0 0 20 0 1 0 1000 4096 25 18446744073709551615\n";
  const auto state = parse_process_state(stat, 4096);
  REQUIRE(state);
  CHECK(state->is_stopped());
  CHECK(state->cpu_ticks == 200);
  CHECK(state->resident_bytes == 25 * 4096);
  CHECK_FALSE(parse_process_state("", 4096));
  CHECK_FALSE(parse_process_state("12 (a) T 1", 4096));
  CHECK(io_bytes_in("rchar: 10\nwchar: 5\nsyscr: 7\n") == 15);
  CHECK(takes_signal("Name:\tx\nSigCgt:\t0000000000000200\n", 10));
  CHECK_FALSE(takes_signal("Name:\tx\nSigCgt:\t0000000000000200\n", 9));
  CHECK_FALSE(takes_signal("", 10));
}

TEST_CASE("ELF symbols: many places of a file have the names that each has alone") {
  std::ifstream stream("/proc/self/exe", std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(stream), {}};
  std::set<std::uint64_t> offsets{0, file.size() - 1, file.size() + 1, ~std::uint64_t{0}};
  for (std::uint64_t offset = 0; offset < file.size(); offset += file.size() / 100) offsets.insert(offset);
  const auto all = functions_at(file, offsets);
  std::map<std::uint64_t, std::string> each;
  for (const std::uint64_t offset : offsets) each.merge(functions_at(file, {offset}));
  CHECK(all.size() > 10);
  CHECK(all == each);
}

TEST_CASE("ELF symbols: damaged files name nothing") {
  CHECK(functions_at("", {0}).empty());
  CHECK(functions_at(std::string(4096, '\x7f'), {100}).empty());
  CHECK(functions_at(std::string("\x7f"
                                 "ELF\x02",
                                 5) +
                         std::string(200, '\xff'),
                     {10})
            .empty());
  const auto files = executable_files(
      "00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/train\n"
      "00651000-00652000 r--p 00051000 08:02 173521      /usr/bin/train\n"
      "7ffe-7fff r-xp 0 00:00 0   [vdso]\nx\n");
  REQUIRE(files.size() == 1);
  CHECK(files[0].begin == 0x400000);
  CHECK(files[0].offset == 0x1000);
  CHECK(files[0].path == "/usr/bin/train");
}

}  // namespace
}  // namespace launcher
