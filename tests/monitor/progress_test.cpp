#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/base/progress.h>
#include <ddprun/monitor/progress.h>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;

struct LoopGroup {
  int this_rank = 0;
  int rank() const { return this_rank; }
  int size() const { return 2; }
};

// What a loop writes where no terminal is.
class Written {
 public:
  std::FILE* stream() { return stream_; }
  std::string text() {
    std::rewind(stream_);
    std::string all(1 << 16, '\0');
    all.resize(std::fread(all.data(), 1, all.size(), stream_));
    return all;
  }
  ~Written() { std::fclose(stream_); }

 private:
  std::FILE* stream_ = std::tmpfile();
};

struct Pulse {  // an iterator as loaders have: it only moves on and compares with the end
  int* at;
  int& operator*() const { return *at; }
  Pulse& operator++() {
    ++*at;
    return *this;
  }
  bool operator==(std::default_sentinel_t) const { return *at == 3; }
};

struct Loader {
  int at = 0;
  Pulse begin() {
    at = 0;
    return {&at};
  }
  std::default_sentinel_t end() const { return {}; }
  std::optional<size_t> size() const { return 3; }
};

TEST_CASE("Progress: a loop over anything shows how far it is, and gives what there is in it") {
  Written written;
  std::vector<int> seen;
  for (const int value :
       progress(std::vector<int>{4, 5, 6}, LoopGroup{}, {.description = "train", .stream = written.stream()})) {
    seen.push_back(value);
  }
  CHECK(seen == std::vector<int>{4, 5, 6});
  CHECK_THAT(written.text(), ContainsSubstring("train: 100% 3/3 ["));
}

TEST_CASE("Progress: elements of the caller's range can be changed, and each loop has a bar of its own") {
  Written written;
  std::vector<int> values{1, 2};
  auto loop = progress(values, LoopGroup{}, {.stream = written.stream()});
  for (int round = 0; round < 2; ++round) {
    for (int& value : loop) {
      value *= 10;
      loop.bar().set_postfix({{"value", value}, {"name", "x"}, {"part", 0.25F}});
    }
    CHECK(loop.bar().done() == 2);
  }
  CHECK(values == std::vector<int>{100, 200});
}

TEST_CASE("Progress: a loader's size is the bar's, and whole numbers are shown in all their digits") {
  Written written;
  Loader loader;
  {
    auto loop = progress(loader, LoopGroup{}, {.stream = written.stream()});
    for (const int step : loop) loop.bar().set_postfix({{"seen", int64_t{123456} + step}});
  }
  CHECK_THAT(written.text(), ContainsSubstring("100% 3/3 [") && ContainsSubstring("seen=123458"));
}

TEST_CASE("Progress: where a rank is and a loop with a bar have one name") {
  Written written;
  for (const int value : ddp::progress(std::vector<int>{7}, {.stream = written.stream()})) {
    const ddp::progress::PhaseScope phase("seven");
    ddp::progress::value("value", value);
    ddp::progress::step();
  }
  CHECK_THAT(written.text(), ContainsSubstring("100% 1/1 ["));
}

TEST_CASE("Progress: other ranks than 0 loop in silence") {
  Written written;
  int count = 0;
  for ([[maybe_unused]] const int value :
       progress(std::vector<int>(5), LoopGroup{.this_rank = 1}, {.stream = written.stream()})) {
    ++count;
  }
  CHECK(count == 5);
  CHECK(written.text().empty());
}

}  // namespace
}  // namespace ddp
