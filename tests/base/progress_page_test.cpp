#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/progress/own_page.h"
#include "base/progress/page_reader.h"
#include "base/progress/page_writer.h"
#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

using Phase = progress::Phase;

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

// Ends a step on another tick of the clock than the step before.
void finish_step_later(PageWriter& writer) {
  const std::uint64_t before = page_tick();
  while (page_tick() == before) {
  }
  writer.finish_step();
}

TEST_CASE_METHOD(PageTest, "Progress page: there are no totals before the first step") {
  CHECK_FALSE(read_step_totals(*page));
  finish_step_later(*writer);
  REQUIRE(read_step_totals(*page));
  CHECK(read_step_totals(*page)->steps == 1);
}

TEST_CASE_METHOD(PageTest,
                 "Progress page: the totals of a step have the time in each phase and what of it was waiting") {
  writer->enter_phase(Phase::kForward);
  finish_step_later(*writer);
  const StepTotals first = *read_step_totals(*page);
  finish_step_later(*writer);  // in the same phase
  writer->enter_phase(Phase::kBackward);
  writer->add_wait(70);
  writer->add_wait(30);
  finish_step_later(*writer);
  const StepTotals last = *read_step_totals(*page);
  constexpr auto kForward = static_cast<std::size_t>(Phase::kForward);
  constexpr auto kBackward = static_cast<std::size_t>(Phase::kBackward);
  CHECK(last.steps == 3);
  CHECK(last.waited[kBackward] == 100);
  CHECK(last.waited[kForward] == 0);
  CHECK(last.spent[kForward] > first.spent[kForward]);
  CHECK(last.spent[kForward] + last.spent[kBackward] - first.spent[kForward] == last.time - first.time);
}

TEST_CASE_METHOD(PageTest, "Progress page: the totals of short steps are at most one tick of the clock old") {
  finish_step_later(*writer);
  const std::uint64_t begin = page_tick();
  std::uint64_t steps = 1;
  std::uint64_t reported = 1;  // at the last tick, perhaps one step before
  std::uint64_t tick = 0;
  while (page_tick() - begin < 50'000) {
    const std::uint64_t before = page_tick();
    writer->finish_step();
    ++steps;
    if (before == page_tick() && std::exchange(tick, before) != before) reported = steps - 1;
  }
  const StepTotals totals = *read_step_totals(*page);
  CHECK(totals.steps >= reported);
  CHECK(totals.steps <= steps);
  CHECK(totals.time >= begin);
}

TEST_CASE_METHOD(PageTest,
                 "Progress page: beside what runs in the background a rank waits from the last begin to the last end") {
  writer->enter_phase(Phase::kBackward);
  writer->begin_background(1000);
  writer->end_background(1500);  // the rank computes meanwhile
  writer->begin_background(2000);
  writer->end_background(2400);
  writer->settle_background();
  writer->settle_background();  // there is nothing new
  finish_step_later(*writer);
  CHECK(read_step_totals(*page)->waited[static_cast<std::size_t>(Phase::kBackward)] == 400);
  writer->begin_background(3000);  // it does not end in this step
  writer->settle_background();
  finish_step_later(*writer);
  CHECK(read_step_totals(*page)->waited[static_cast<std::size_t>(Phase::kBackward)] == 400);
}

TEST_CASE_METHOD(PageTest, "Progress page: a message between two ranks is told from a collective") {
  const PageGroup job = writer->add_group("", 0, 2, 0);
  writer->begin_collective(job, 0, "barrier");
  const std::uint64_t message =
      writer->begin_collective(job, 0, "recv (from rank 1, tag 3) of Float [2]", page_clock(), {.is_message = true});
  ProgressSnapshot now = read();
  CHECK_FALSE(now.collectives[0].is_message);
  CHECK(now.collectives[1].is_message);
  CHECK(now.collectives[1].group == job);
  CHECK(now.collectives[1].is_open());
  writer->finish_collective(message);
  CHECK_FALSE(read().collectives[1].is_open());
}

TEST_CASE_METHOD(PageTest, "Progress page: the times of the program's own phases are kept by their names") {
  writer->enter_phase("warm-up");
  writer->add_wait(40);
  finish_step_later(*writer);
  writer->enter_phase("logging");
  finish_step_later(*writer);
  const StepTotals totals = *read_step_totals(*page);
  constexpr auto kUser = static_cast<std::size_t>(Phase::kUser);
  REQUIRE(totals.named.size() == 2);
  CHECK(totals.named.at("warm-up").waited == 40);
  CHECK(totals.named.at("warm-up").spent > 0);
  CHECK(totals.named.at("warm-up").spent + totals.named.at("logging").spent == totals.spent[kUser]);
  writer->enter_phase(Phase::kOther);
  CHECK(read().named.at("warm-up") == totals.named.at("warm-up").spent);
  for (int i = 0; i < 100; ++i) writer->enter_phase("phase " + std::to_string(i));
  CHECK(read().named.size() <= kNameEntries);
}

TEST_CASE_METHOD(PageTest, "Progress page: a reader never sees totals of two steps") {
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    while (!is_over) {
      writer->add_wait(1);
      finish_step_later(*writer);
    }
  });
  int seen = 0;
  bool is_whole = true;
  for (int look = 0; look < 2'000'000 && seen < 20; ++look) {
    const auto totals = read_step_totals(*page);
    if (!totals) continue;
    is_whole = is_whole && totals->waited[static_cast<std::size_t>(Phase::kStart)] == totals->steps;
    if (totals->steps > static_cast<std::uint64_t>(seen)) seen = static_cast<int>(totals->steps);
  }
  is_over = true;
  other.join();
  CHECK(is_whole);
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
  CHECK_FALSE(now.collectives[0].is_same_call_as(now.collectives[1]));
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
  // Memory that nothing may read follows the page.
  const auto unit = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t size = (sizeof(Page) + unit - 1) / unit * unit;
  void* const memory = ::mmap(nullptr, size + unit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  REQUIRE(::mprotect(static_cast<std::byte*>(memory) + size, unit, PROT_NONE) == 0);
  auto* const written = new (static_cast<std::byte*>(memory) + size - sizeof(Page)) Page();
  written->greeting = kPageGreeting;
  PageWriter own(*written);
  own.begin_collective(own.add_group("", 0, 1, 0), 0, "barrier");
  std::size_t most_collectives = 0;
  std::size_t most_groups = 0;
  std::size_t most_frames = 0;
  std::size_t most_names = 0;
  for (Word* word = &written->step; word < reinterpret_cast<Word*>(written + 1); ++word) {
    const std::uint64_t before = word->exchange(~std::uint64_t{0});
    if (const auto snapshot = read_page(*written)) {
      most_collectives = std::max(most_collectives, snapshot->collectives.size());
      most_groups = std::max(most_groups, snapshot->groups.size());
    }
    if (const auto stack = read_stack(*written, 1)) most_frames = std::max(most_frames, stack->size());
    if (const auto totals = read_step_totals(*written)) most_names = std::max(most_names, totals->named.size());
    if (word != &written->next_collective) word->store(before);
  }
  CHECK(most_collectives > 0);
  CHECK(most_collectives <= kRingEntries);
  CHECK(most_groups > 0);
  CHECK(most_groups <= kGroupEntries);
  CHECK(most_frames <= kStackFrames);
  CHECK(most_names <= kNameEntries);
  ::munmap(memory, size + unit);
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
  // DistributedDataParallel counts the first step, as it does not know yet that the program counts as well.
  expect_step();
  finish_expected_step();
  CHECK(own_page().page().step == before + 1);
  progress::step();
  {
    const progress::PhaseScope phase("mine");
    progress::value("loss", 1);
  }
  CHECK(own_page().page().step == before + 1);
  expect_step();
  finish_expected_step();
  progress::step();
  CHECK(own_page().page().step == before + 2);
  CHECK(own_page().page().greeting == 0);
}

}  // namespace
}  // namespace ddp::detail
