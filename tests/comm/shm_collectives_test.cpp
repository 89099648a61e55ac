// Collectives in shared memory, without LibTorch: every kind, every size that is cut differently, any number of ranks.
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "comm/shm/collectives.h"
#include "comm/shm/operation.h"
#include "tests/comm/shm_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"

namespace ddp::shm {
namespace {

using test::bytes_of;
using test::run_shm_ranks;
using test::ShmRank;
using Floats = std::vector<float>;

constexpr int kNoRoot = -1;
constexpr size_t kNested = 5;

// Beside each border: a tiny slot, a direct sum, a chunk, a slot, all slots of a rank.
const std::vector<size_t> kCounts{0, 1, 8, 9, 4096, 4097, 16'384, 16'385, 32'768, 32'769, 131'072, 500'001, 1'048'577};

float value(int rank, size_t index) {
  return static_cast<float>((index * 7 + 13) % 101) + 1000.F * static_cast<float>(rank);
}

Floats values_of(int rank, size_t count, size_t begin = 0) {
  Floats values(count);
  for (size_t i = 0; i < count; ++i) values[i] = value(rank, begin + i);
  return values;
}

Floats sum_of(int ranks, size_t count, size_t begin = 0) {
  Floats sum = values_of(0, count, begin);
  for (int rank = 1; rank < ranks; ++rank) {
    for (size_t i = 0; i < count; ++i) sum[i] += value(rank, begin + i);
  }
  return sum;
}

class ShmCollectives {
 protected:
  void run(const std::function<void(const ShmRank&)>& body) const {
    run_shm_ranks(ranks_, body);
    test::report_rank_checks();
  }

  const int ranks_ = GENERATE(1, 2, 3, 5);
  FIXTURE_INFO("ranks: " << ranks_);
};

TEST_CASE_METHOD(ShmCollectives, "ShmCollectives: all_reduce sums any number of elements in place") {
  run([&](const ShmRank& self) {
    for (const size_t count : kCounts) {
      RANK_INFO("elements " << count);
      Floats data = values_of(self.place.rank, count);
      self.run(all_reduce(bytes_of(data), count, {}, self.place));
      RANK_CHECK(data == sum_of(ranks_, count));
    }
  });
}

struct CountedNote final : WaitObserver {
  void announced() noexcept override { ++times_told; }
  void late() noexcept override {
    if (times_told == 0) announced();
    was_told_before = times_told == 1 && ++times_late == 1;
  }
  int times_told = 0;
  int times_late = 0;
  bool was_told_before = false;
};

TEST_CASE_METHOD(ShmCollectives, "ShmCollectives: all_reduce_now goes on where the others are late, and says so once") {
  std::atomic<int> times_late{0};
  run([&](const ShmRank& self) {
    for (int turn = 0; turn < 60; ++turn) {
      for (const size_t count : {size_t{1}, size_t{9}, size_t{4096}, size_t{16'385}, size_t{131'072}}) {
        RANK_INFO("turn " << turn << ", elements " << count);
        const bool is_slow = turn % 6 == self.place.rank;
        if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        Floats before = values_of(self.place.rank, 77);
        const JointPtr other = turn % 4 == 3 ? all_reduce(bytes_of(before), before.size(), {}, self.place) : nullptr;
        if (other) self.engine->start(other);  // and nobody waits for it yet
        Floats data = values_of(self.place.rank, count);
        CountedNote note;
        const JointPtr late =
            all_reduce_now(*self.engine, bytes_of(data), count, {}, self.place, std::chrono::seconds(60), note);
        RANK_CHECK(data == sum_of(ranks_, count));
        RANK_CHECK(note.times_told == 1);
        RANK_CHECK(note.times_late == (late ? 1 : 0));
        RANK_CHECK((!late || note.was_told_before));
        if (late) RANK_CHECK(late->has_ended());
        if (late) times_late += 1;
        if (!other) continue;
        self.finish(*other);
        RANK_CHECK(before == sum_of(ranks_, before.size()));
      }
    }
  });
  if (ranks_ > 1) CHECK(times_late > 0);
}

TEST_CASE_METHOD(ShmCollectives, "ShmCollectives: many that nobody waits for are done one after the other") {
  constexpr size_t kCalls = 2000;
  run([&](const ShmRank& self) {
    std::vector<Floats> data(kCalls, values_of(self.place.rank, 3));
    std::vector<JointPtr> started;
    for (Floats& each : data) {
      started.push_back(all_reduce(bytes_of(each), each.size(), {}, self.place));
      self.engine->start(started.back());
    }
    const auto begin = std::chrono::steady_clock::now();
    // A pause before each of them would take ten seconds.
    while (!started.back()->has_ended() && std::chrono::steady_clock::now() - begin < std::chrono::seconds(5)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    RANK_CHECK(started.back()->has_ended());
    for (const JointPtr& each : started) self.finish(*each);
    RANK_CHECK(data.back() == sum_of(ranks_, 3));
  });
}

TEST_CASE_METHOD(ShmCollectives, "ShmCollectives: the end of an operation may wait for further ones") {
  run([&](const ShmRank& self) {
    std::vector<Floats> data(kNested, values_of(self.place.rank, 3));
    // As a function that the program has attached to a future: it waits, and does not help.
    const std::function<void(size_t)> reduce_from = [&](size_t number) {
      const JointPtr operation = all_reduce(bytes_of(data[number]), 3, {}, self.place);
      const auto ended = std::make_shared<std::promise<void>>();
      operation->set_calls_program();
      operation->set_on_end([&reduce_from, number, ended] {
        if (number + 1 < kNested) reduce_from(number + 1);
        ended->set_value();
      });
      self.engine->start(operation);
      self.engine->make_urgent();
      RANK_REQUIRE(ended->get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready);
    };
    for (int turn = 0; turn < 20; ++turn) {
      for (Floats& each : data) each = values_of(self.place.rank, 3);
      reduce_from(0);
      for (const Floats& each : data) RANK_CHECK(each == sum_of(ranks_, 3));
    }
  });
}

TEST_CASE_METHOD(ShmCollectives, "ShmCollectives: reduce leaves the sum on its root and the others as they were") {
  run([&](const ShmRank& self) {
    for (const size_t count : kCounts) {
      RANK_INFO("elements " << count);
      for (int root = 0; root < ranks_; ++root) {
        Floats data = values_of(self.place.rank, count);
        self.run(reduce(bytes_of(data), count, {}, root, self.place));
        RANK_CHECK(data == (root == self.place.rank ? sum_of(ranks_, count) : values_of(self.place.rank, count)));
      }
    }
  });
}

TEST_CASE_METHOD(ShmCollectives, "ShmCollectives: reduce_scatter gives each rank the sum of its part") {
  run([&](const ShmRank& self) {
    for (const size_t count : kCounts) {
      RANK_INFO("elements " << count);
      Floats input = values_of(self.place.rank, count * static_cast<size_t>(ranks_));
      std::vector<const std::byte*> inputs;
      for (int rank = 0; rank < ranks_; ++rank) {
        inputs.push_back(bytes_of(input) + static_cast<size_t>(rank) * count * sizeof(float));
      }
      Floats output(count);
      self.run(reduce_scatter(bytes_of(output), inputs, count, {}, self.place));
      RANK_CHECK(output == sum_of(ranks_, count, static_cast<size_t>(self.place.rank) * count));
    }
  });
}

TEST_CASE_METHOD(ShmCollectives, "ShmCollectives: broadcast and scatter bring the root's bytes to all") {
  run([&](const ShmRank& self) {
    for (const size_t count : kCounts) {
      RANK_INFO("elements " << count);
      for (int root = 0; root < ranks_; ++root) {
        Floats data = values_of(self.place.rank, count);
        self.run(broadcast(bytes_of(data), count * sizeof(float), root, self.place));
        RANK_CHECK(data == values_of(root, count));

        Floats parts = values_of(root, count * static_cast<size_t>(ranks_));
        std::vector<const std::byte*> inputs;
        for (int rank = 0; root == self.place.rank && rank < ranks_; ++rank) {
          inputs.push_back(bytes_of(parts) + static_cast<size_t>(rank) * count * sizeof(float));
        }
        Floats output(count);
        self.run(scatter(bytes_of(output), inputs, count * sizeof(float), root, self.place));
        RANK_CHECK(output == values_of(root, count, static_cast<size_t>(self.place.rank) * count));
      }
    }
  });
}

TEST_CASE_METHOD(ShmCollectives, "ShmCollectives: all_gather and gather bring all ranks' bytes") {
  run([&](const ShmRank& self) {
    for (const size_t count : kCounts) {
      RANK_INFO("elements " << count);
      for (int root = kNoRoot; root < ranks_; ++root) {
        Floats input = values_of(self.place.rank, count);
        std::vector<Floats> outputs(static_cast<size_t>(ranks_), Floats(count, -1.F));
        std::vector<std::byte*> places;
        const bool takes = root == kNoRoot || root == self.place.rank;
        for (Floats& output : outputs) {
          if (takes) places.push_back(bytes_of(output));
        }
        const size_t bytes = count * sizeof(float);
        self.run(root == kNoRoot ? all_gather(places, bytes_of(input), bytes, self.place)
                                 : gather(places, bytes_of(input), bytes, root, self.place));
        for (int rank = 0; takes && rank < ranks_; ++rank) {
          RANK_CHECK(outputs[static_cast<size_t>(rank)] == values_of(rank, count));
        }
      }
    }
  });
}

TEST_CASE_METHOD(ShmCollectives, "ShmCollectives: all_to_all exchanges equal and unequal pieces") {
  run([&](const ShmRank& self) {
    for (const size_t count : kCounts) {
      for (const bool are_equal : {true, false}) {
        RANK_INFO("elements " << count << ", equal " << are_equal);
        const auto size = [&](int from, int to) {
          return are_equal ? count : count * static_cast<size_t>((from + 2 * to) % 3) / 2;
        };
        std::vector<Floats> inputs;
        std::vector<Floats> outputs;
        for (int peer = 0; peer < ranks_; ++peer) {
          inputs.push_back(values_of(self.place.rank, size(self.place.rank, peer), static_cast<size_t>(peer)));
          outputs.emplace_back(size(peer, self.place.rank));
        }
        std::vector<Piece> sent;
        std::vector<Piece> received;
        for (Floats& input : inputs) sent.push_back({bytes_of(input), input.size() * sizeof(float)});
        for (Floats& output : outputs) received.push_back({bytes_of(output), output.size() * sizeof(float)});
        self.run(all_to_all(received, sent, are_equal, self.place));
        for (int peer = 0; peer < ranks_; ++peer) {
          const Floats& output = outputs[static_cast<size_t>(peer)];
          RANK_CHECK(output == values_of(peer, output.size(), static_cast<size_t>(self.place.rank)));
        }
      }
    }
  });
}

TEST_CASE_METHOD(ShmCollectives, "ShmCollectives: several operations under way at once keep their order") {
  run([&](const ShmRank& self) {
    constexpr int kOperations = 40;
    std::vector<Floats> data;
    std::vector<JointPtr> started;
    for (int i = 0; i < kOperations; ++i) {
      const size_t count = kCounts[static_cast<size_t>(i) % kCounts.size()];
      data.push_back(values_of(self.place.rank + i, count));
    }
    for (int i = 0; i < kOperations; ++i) {
      Floats& each = data[static_cast<size_t>(i)];
      started.push_back(i % 4 == 3 ? broadcast(bytes_of(each), each.size() * sizeof(float), i % ranks_, self.place)
                                   : all_reduce(bytes_of(each), each.size(), {}, self.place));
      self.engine->start(started.back());
    }
    for (int i = kOperations - 1; i >= 0; --i) self.finish(*started[static_cast<size_t>(i)]);
    for (int i = 0; i < kOperations; ++i) {
      const Floats& each = data[static_cast<size_t>(i)];
      if (i % 4 == 3) {
        RANK_CHECK(each == values_of(i % ranks_ + i, each.size()));
      } else {
        Floats sum = values_of(i, each.size());
        for (int rank = 1; rank < ranks_; ++rank) {
          for (size_t k = 0; k < sum.size(); ++k) sum[k] += value(rank + i, k);
        }
        RANK_CHECK(each == sum);
      }
    }
  });
}

TEST_CASE_METHOD(ShmCollectives, "ShmCollectives: nobody leaves a barrier before all have come") {
  std::atomic<int> arrived{0};
  run([&](const ShmRank& self) {
    for (int i = 1; i <= 200; ++i) {
      ++arrived;
      self.run(barrier());
      RANK_CHECK(arrived >= i * ranks_);
    }
  });
}

TEST_CASE("ShmCollectives: ranks that map the memory each by themselves meet in it") {
  run_shm_ranks(
      3,
      [](const ShmRank& self) {
        for (const size_t count : kCounts) {
          Floats data = values_of(self.place.rank, count);
          self.run(all_reduce(bytes_of(data), count, {}, self.place));
          RANK_CHECK(data == sum_of(3, count));
        }
      },
      /*attach=*/true);
  test::report_rank_checks();
}

TEST_CASE("ShmCollectives: ranks that call different operations are told which") {
  run_shm_ranks(2, [](const ShmRank& self) {
    Floats data(4);
    std::string message;
    try {
      self.run(self.place.rank == 0 ? all_reduce(bytes_of(data), 4, {}, self.place)
                                    : broadcast(bytes_of(data), 8, 0, self.place));
    } catch (const std::exception& error) {
      message = error.what();
    }
    RANK_INFO(message);
    RANK_CHECK(message.find("all_reduce (sum of float32) of 16 bytes") != std::string::npos);
  });
  test::report_rank_checks();
}

}  // namespace
}  // namespace ddp::shm
