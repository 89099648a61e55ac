#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/progress/own_page.h"
#include "base/progress/page_reader.h"
#include "base/progress/page_writer.h"
#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

using progress::Phase;

struct PageTest {
  PageTest() {
    page->greeting = kPageGreeting;
    writer = std::make_unique<PageWriter>(*page);
  }
  ProgressSnapshot read() const {
    auto snapshot = read_page(*page);
    REQUIRE(snapshot);
    return *snapshot;
  }
  std::unique_ptr<Page> page = std::make_unique<Page>();
  std::unique_ptr<PageWriter> writer;
};

TEST_CASE_METHOD(PageTest, "Progress page: phases, steps and values are read as they were written") {
  CHECK(read().phase == Phase::kStart);
  const unsigned outer = writer->enter_phase(Phase::kForward);
  CHECK(read().phase_name == "forward");
  const unsigned inner = writer->enter_phase("warm-up of the cache");
  CHECK(read().phase == Phase::kUser);
  CHECK(read().phase_name == "warm-up of the cache");
  CHECK(read().phase_since <= page_clock());
  writer->restore_phase(inner);
  CHECK(read().phase_name == "forward");
  writer->restore_phase(outer);
  CHECK(read().phase_name == "start");
  writer->finish_step();
  writer->finish_step();
  writer->set_value("loss", 0.5);
  writer->set_value("loss", 0.25);
  CHECK(read().step == 2);
  CHECK(read().values == std::vector<std::pair<std::string, double>>{{"loss", 0.25}});
}

TEST_CASE_METHOD(PageTest, "Progress page: collectives are kept with what tells them apart") {
  const PageGroup job = writer->add_group("", 1, 4, 0);
  const PageGroup pair = writer->add_group("subgroup1/", 0, 2, 1);
  const std::uint64_t first = writer->begin_collective(job, 0, "barrier");
  writer->begin_collective(pair, 0, "all_reduce (sum) of Float [2, 3]");
  writer->finish_collective(first);
  const ProgressSnapshot now = read();
  REQUIRE(now.groups.size() == 2);
  CHECK(now.groups[1].path == "subgroup1/");
  CHECK(now.groups[1].leader == 1);
  REQUIRE(now.collectives.size() == 2);
  CHECK(now.collectives[0].signature == "barrier");
  CHECK_FALSE(now.collectives[0].is_open());
  CHECK(now.collectives[1].is_open());
  CHECK(now.collectives[1].group == pair);
}

TEST_CASE_METHOD(PageTest, "Progress page: signatures that differ behind what fits are told apart") {
  const PageGroup job = writer->add_group("", 0, 1, 0);
  const std::string common(500, 'x');
  writer->begin_collective(job, 0, common + "1");
  writer->begin_collective(job, 1, common + "2");
  const ProgressSnapshot now = read();
  CHECK(now.collectives[0].signature == now.collectives[1].signature);
  CHECK_FALSE(now.collectives[0].calls_the_same(now.collectives[1]));
}

TEST_CASE_METHOD(PageTest, "Progress page: the last thousand collectives stay, and a late end changes no later one") {
  const PageGroup job = writer->add_group("", 0, 1, 0);
  const std::uint64_t first = writer->begin_collective(job, 0, "barrier");
  for (std::uint64_t number = 1; number <= kRingEntries; ++number) writer->begin_collective(job, number, "barrier");
  writer->finish_collective(first);
  const ProgressSnapshot now = read();
  REQUIRE(now.collectives.size() == kRingEntries);
  CHECK(now.collectives.front().number == 1);
  CHECK(now.collectives.back().number == kRingEntries);
  CHECK(now.collectives.back().is_open());
}

TEST_CASE_METHOD(PageTest, "Progress page: a page of nobody, or of another layout, is not read") {
  CHECK(last_activity(*page) > 0);
  page->version = kPageVersion + 1;
  CHECK_FALSE(read_page(*page));
  CHECK(last_activity(*page) == 0);
  page->version = 0;
  CHECK_FALSE(read_page(*page));
}

TEST_CASE_METHOD(PageTest, "Progress page: nothing that a program writes there leads the reader out of it") {
  writer->begin_collective(writer->add_group("", 0, 1, 0), 0, "barrier");
  for (Word* word = &page->step; word < reinterpret_cast<Word*>(page.get() + 1); ++word) {
    const std::uint64_t before = word->exchange(~std::uint64_t{0});
    static_cast<void>(read_page(*page));
    static_cast<void>(read_stack(*page, 1));
    if (word != &page->next_collective) word->store(before);
  }
}

TEST_CASE_METHOD(PageTest, "Progress page: a reader never sees a collective that is torn") {
  const PageGroup job = writer->add_group("", 0, 1, 0);
  // A signature that says its own number in every word of it.
  const auto signature_of = [](std::uint64_t number) {
    std::string text;
    while (text.size() < 90) text += std::to_string(number) + ",";
    return text;
  };
  std::atomic<bool> is_over{false};
  std::vector<std::thread> writers;
  std::atomic<std::uint64_t> next{0};
  for (int i = 0; i < 2; ++i) {
    writers.emplace_back([&] {
      while (!is_over) {
        const std::uint64_t number = next.fetch_add(1);
        const std::uint64_t index = writer->begin_collective(job, number, signature_of(number));
        writer->finish_collective(index);
      }
    });
  }
  std::size_t seen = 0;
  std::size_t torn = 0;
  for (int look = 0; look < 200 || seen < 1000; ++look) {
    for (const CollectiveRecord& record : read().collectives) {
      ++seen;
      if (record.signature != signature_of(record.number)) ++torn;
      if (record.end && *record.end < record.begin) ++torn;
    }
  }
  is_over = true;
  for (std::thread& each : writers) each.join();
  CHECK(torn == 0);
}

TEST_CASE("Progress page: what a program tells without a launcher stays its own") {
  const std::uint64_t before = own_page().page().step;
  progress::step();
  {
    const progress::PhaseScope phase("mine");
    progress::value("loss", 1);
  }
  CHECK(own_page().page().step == before + 1);
  CHECK(own_page().page().greeting == 0);
}

}  // namespace
}  // namespace ddp::detail
