#include "launcher/plan/log_layout.h"

#include <set>
#include <string>

#include "tests/support/catch.h"

namespace launcher {
namespace {

const LogLayout kLayout{.error_folder = "/errors", .log_folder = "/logs/run", .output_folder = "/out"};

TEST_CASE("LogLayout: attempts have folders, and local ranks have theirs in them, as torchrun's") {
  const RankPlace place{.rank = 7, .local_rank = 3, .world_size = 8};
  CHECK(kLayout.attempt_folder(0) == "/logs/run/attempt_0");
  CHECK(kLayout.attempt_folder(12) == "/logs/run/attempt_12");
  CHECK(kLayout.rank_folder(2, place) == "/logs/run/attempt_2/3");
  CHECK(kLayout.log_file(2, place, Stream::kOutput) == "/logs/run/attempt_2/3/stdout.log");
  CHECK(kLayout.log_file(2, place, Stream::kError) == "/logs/run/attempt_2/3/stderr.log");
  CHECK(kLayout.filtered_file(2, Stream::kError) == "/logs/run/attempt_2/filtered_stderr.log");
}

TEST_CASE("LogLayout: no two ranks of a node, attempts or streams have the same file") {
  LogLayout without_logs = kLayout;
  without_logs.log_folder.clear();
  std::set<std::string> files;
  std::size_t count = 0;
  for (int attempt = 0; attempt < 12; ++attempt) {
    for (int rank = 0; rank < 12; ++rank) {
      const RankPlace place{.rank = 100 + rank, .local_rank = rank, .world_size = 1'000};
      for (const std::string& file :
           {kLayout.error_file(attempt, place), without_logs.error_file(attempt, place),
            kLayout.log_file(attempt, place, Stream::kOutput), kLayout.log_file(attempt, place, Stream::kError)}) {
        files.insert(file);
        ++count;
      }
    }
  }
  CHECK(files.size() == count);
}

TEST_CASE("LogLayout: folders of ranks sort as the ranks do, however many there are") {
  for (const int world_size : {1, 2, 10, 11, 100, 101, 65'536}) {
    CAPTURE(world_size);
    std::string before;
    for (int rank = 0; rank < world_size; rank += std::max(1, world_size / 50)) {
      const std::string folder = kLayout.output_rank_folder({.rank = rank, .world_size = world_size});
      REQUIRE(before < folder);
      before = folder;
    }
    const std::string last = kLayout.output_rank_folder({.rank = world_size - 1, .world_size = world_size});
    CHECK(last == "/out/rank." + std::to_string(world_size - 1));
    CHECK(before.size() == last.size());
  }
}

TEST_CASE("LogLayout: one file for all attempts in a rank's own folder") {
  const RankPlace place{.rank = 3, .local_rank = 1, .world_size = 11};
  CHECK(kLayout.output_file(place, Stream::kOutput) == "/out/rank.03/stdout");
  CHECK(kLayout.output_file(place, Stream::kError) == "/out/rank.03/stderr");
}

}  // namespace
}  // namespace launcher
