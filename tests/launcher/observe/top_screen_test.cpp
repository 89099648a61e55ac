#include "launcher/observe/watch/top_screen.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace launcher {
namespace {

using nlohmann::ordered_json;
using Lines = std::vector<std::string>;

ordered_json job_of(int ranks) {
  ordered_json job{{"job", "cifar"}, {"pid", 4711},      {"host", "node0"}, {"program", {"train"}},
                   {"attempt", 0},   {"seconds", 121.0}, {"hang", nullptr}, {"stragglers", ordered_json::array()}};
  job["ranks"] = ordered_json::array();
  for (int rank = 0; rank < ranks; ++rank) {
    job["ranks"].push_back({{"rank", rank},
                            {"host", "node0"},
                            {"runs", true},
                            {"ended", nullptr},
                            {"phase", "backward"},
                            {"phase_seconds", 121.0},
                            {"step", 7},
                            {"steps_per_second", nullptr},
                            {"collective", nullptr},
                            {"process", "running"}});
  }
  return job;
}

// Rank `cause` is in data, and the others wait for it.
ordered_json hanging(int ranks, int cause) {
  ordered_json job = job_of(ranks);
  job["ranks"][static_cast<std::size_t>(cause)]["phase"] = "data";
  job["hang"] = {{"ranks", {cause}},
                 {"seconds", 121.0},
                 {"message", "rank " + std::to_string(cause) + " has not entered all_reduce #7; rank 0 waits for it"}};
  return job;
}

Lines screen_of(const std::vector<ordered_json>& jobs, std::size_t columns, std::size_t rows,
                const TopState& state = {}) {
  return top_screen(jobs, {}, state, columns, rows);
}

const std::string kGapOfNumbers(33, ' ');
std::string rank_row(int rank, const std::string& phase) {
  return std::to_string(rank) + "     node0  " + phase + "  121 s  7     " + kGapOfNumbers + "running";
}

TEST_CASE("TopScreen: 8 ranks that hang, on 80 columns and 24 rows") {
  CHECK(screen_of({hanging(8, 5)}, 80, 24) ==
        Lines{"job cifar (ddprun 4711 on node0) for 121 s: train",
              "no rank has made progress for 121 s: rank 5 has not entered all_reduce #7; rank", "0 waits for it",
              "rank  host   phase     since  step  steps/s  own  waits  collective  process", rank_row(5, "data    "),
              rank_row(0, "backward"), rank_row(1, "backward"), rank_row(2, "backward"), rank_row(3, "backward"),
              rank_row(4, "backward"), rank_row(6, "backward"), rank_row(7, "backward"),
              "q quit  s stacks  / filter  arrows"});
}

TEST_CASE("TopScreen: 70 ranks that hang, on 40 columns and 10 rows") {
  CHECK(screen_of({hanging(70, 68)}, 40, 10) ==
        Lines{"job cifar (ddprun 4711 on node0) for 121",
              "no rank has made progress for 121 s:", "rank 68 has not entered all_reduce #7;", "rank 0 waits for it",
              "rank         phase     since  step  own", "68           data      121 s  7",
              "0-67 and 69  backward  121 s  7", "q quit  s stacks  / filter  arrows"});
}

TEST_CASE("TopScreen: columns without a value are left out first") {
  ordered_json job = job_of(2);
  for (auto& rank : job["ranks"]) {
    rank.erase("phase");
    rank["process"] = "sleeping in futex_do_wait";
  }
  CHECK(screen_of({job}, 40, 10) == Lines{"job cifar (ddprun 4711 on node0) for 121", "rank  since  process",
                                          "0     0.0 s  sleeping in futex_do_wait",
                                          "1     0.0 s  sleeping in futex_do_wait",
                                          "q quit  s stacks  / filter  arrows"});
}

TEST_CASE("TopScreen: no line is wider and no screen higher than the terminal") {
  for (std::size_t columns = 1; columns < 130; columns += 3) {
    for (std::size_t rows = 1; rows < 30; ++rows) {
      for (const int ranks : {1, 8, 70}) {
        const Lines lines = screen_of({hanging(ranks, 0), job_of(ranks)}, columns, rows);
        CHECK(lines.size() <= rows);
        for (const std::string& line : lines) CHECK(line.size() <= columns);
      }
    }
  }
}

TEST_CASE("TopScreen: jobs that hang are first, and what does not fit is reached by scrolling") {
  ordered_json well = job_of(2);
  well["job"] = "well";
  const Lines both = screen_of({well, hanging(2, 1)}, 80, 24);
  CHECK(both[0].starts_with("job cifar"));
  TopState state;
  const Lines first = screen_of({well, hanging(2, 1)}, 80, 5, state);
  CHECK(first.size() == 5);
  CHECK(first.back().starts_with("1-4 of "));
  press_key(state, "\x1b[B");
  CHECK(screen_of({well, hanging(2, 1)}, 80, 5, state).front() == first[1]);
  state.first_line = 1000;
  const Lines last = screen_of({well, hanging(2, 1)}, 80, 5, state);
  CHECK(last[3] == both[both.size() - 2]);
}

TEST_CASE("TopScreen: keys filter rows, show stacks and end it") {
  TopState state;
  for (const char* key : {"/", "x", "\x7f", "d", "a", "t", "a", "q"}) press_key(state, key);
  CHECK(state.is_typing);
  CHECK_FALSE(state.quits);
  CHECK(screen_of({hanging(8, 5)}, 80, 24, state).back() == "/dataq");
  press_key(state, "\x7f");
  press_key(state, "\r");
  const Lines lines = screen_of({hanging(8, 5)}, 80, 24, state);
  CHECK(lines.size() == 6);
  CHECK(lines[4] == rank_row(5, "data "));
  press_key(state, "s");
  CHECK(state.wants_stacks);
  state.stacks = {"rank 5, main thread:", "    #0 read_sample(long) (train+0x4a31)"};
  CHECK(screen_of({hanging(8, 5)}, 20, 24, state)[1] == "    #0 read_sample(l");
  press_key(state, "s");
  CHECK(state.stacks.empty());
  press_key(state, "q");
  CHECK(state.quits);
}

}  // namespace
}  // namespace launcher
