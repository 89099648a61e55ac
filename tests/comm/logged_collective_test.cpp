// Collectives that c10d starts by itself: numbered, and failing in our words wherever they fail.
#include "comm/reducer/logged_collective.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "comm/group/group_state.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/rank_checks.h"
#include "tests/support/tensors.h"

namespace ddp::detail {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using test::EqualsTensor;
using test::error_of;

TensorFuture pending() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

c10::IValue list_of(const at::Tensor& tensor) {
  return std::vector<at::Tensor>{tensor};
}

// A rank without connections, which asks nobody for a cause.
class Collective {
 protected:
  LoggedCollective begin(const std::string& what) { return {rank_, what, note_}; }
  // The group's calls so far: "0 sum", and "0 sum, ended".
  std::vector<std::string> calls() const {
    std::vector<std::string> texts;
    for (const CallRecord& call : rank_.state().log().report().calls)
      texts.push_back(std::to_string(call.number) + " " + call.signature + (call.ended ? ", ended" : ""));
    return texts;
  }

  const GroupHandle rank_ = test::unconnected_rank(1, 3);
  const std::shared_ptr<ReductionFailure> note_ = std::make_shared<ReductionFailure>();
};

TEST_CASE_METHOD(Collective, "LoggedCollective: takes its number when it is made and has ended when its future has") {
  const LoggedCollective first = begin("first");
  const LoggedCollective second = begin("second");
  const TensorFuture of_second = pending();
  const WorkPtr work = second.run([&] { return work_of(of_second); });
  CHECK(calls() == std::vector<std::string>{"0 first", "1 second"});
  CHECK_FALSE(work->isCompleted());
  CHECK_FALSE(work->isSuccess());
  of_second->markCompleted(list_of(at::ones({1})));
  CHECK(calls() == std::vector<std::string>{"0 first", "1 second, ended"});
  CHECK(work->isCompleted());
  CHECK(work->isSuccess());
  first.end();
  CHECK(calls().front() == "0 first, ended");
  CHECK(note_->get().empty());
}

TEST_CASE_METHOD(Collective,
                 "LoggedCollective: a Work gives the tensors that its future has, however they are asked for") {
  const at::Tensor tensor =
      GENERATE(at::full({2, 3}, 7.F), at::zeros({}), at::zeros({0, 4}), at::ones({2}, at::kLong), at::ones({3, 2}).t());
  const TensorFuture done = pending();
  const WorkPtr work = begin("sum").run([&] { return work_of(done); });
  done->markCompleted(list_of(tensor));
  CHECK(work->wait());
  CHECK(work->result().at(0).is_same(tensor));
  CHECK(work->getFuture()->value().toTensorVector().at(0).is_same(tensor));
  CHECK(work_of(done)->getFuture() == done);
}

TEST_CASE_METHOD(Collective, "LoggedCollective: wait ends when another thread has completed the future") {
  const TensorFuture done = pending();
  const WorkPtr work = begin("sum").run([&] { return work_of(done); });
  std::atomic<bool> has_waited{false};
  std::thread waiting([&] {
    work->wait();
    has_waited = true;
  });
  CHECK_FALSE(has_waited);
  done->markCompleted(list_of(at::ones({1})));
  waiting.join();
  CHECK(has_waited);
  CHECK(calls().front() == "0 sum, ended");
}

TEST_CASE_METHOD(Collective, "LoggedCollective: what starting throws says who, what and which number") {
  begin("earlier").end();
  const LoggedCollective collective = begin("broadcast of the bucket order");
  const std::string expected = "rank 1 of 3: broadcast of the bucket order (number 1) failed: no route";
  const auto fails = [&](const std::function<WorkPtr(const std::function<WorkPtr()>&)>& call) {
    return error_of<std::runtime_error>([&] {
      call([]() -> WorkPtr { throw std::domain_error("no route\nException raised from somewhere\n#0 a frame"); });
    });
  };
  CHECK_THAT(fails([&](const auto& begin) { return collective.start(begin); }), StartsWith(expected));
  CHECK_THAT(fails([&](const auto& begin) { return collective.run(begin); }), StartsWith(expected));
  CHECK_THAT(note_->get(), StartsWith(expected));
  // It has not ended: other ranks may be told that this one was in it.
  CHECK(calls().back() == "1 broadcast of the bucket order");
}

TEST_CASE_METHOD(Collective,
                 "LoggedCollective: what a future holds instead of a value says who, what and which number") {
  const LoggedCollective collective = begin("all_reduce of the used-parameter flags");
  const TensorFuture failing = pending();
  const WorkPtr work = collective.run([&] { return work_of(failing); });
  failing->setError(std::make_exception_ptr(std::domain_error("connection reset")));
  const std::string expected =
      "rank 1 of 3: all_reduce of the used-parameter flags (number 0) failed: connection reset";
  CHECK(note_->get() == expected);  // before anybody has asked
  CHECK(work->isCompleted());
  CHECK_FALSE(work->isSuccess());
  for (int i = 0; i < 2; ++i) {
    CHECK_THAT(error_of<std::exception>([&] { work->wait(); }), StartsWith(expected));
    CHECK_THAT(error_of<std::exception>([&] { work->result(); }), StartsWith(expected));
  }
  CHECK_THAT(error_of<std::runtime_error>([&] { collective.finish(*failing); }), StartsWith(expected));
  CHECK(calls().front() == "0 all_reduce of the used-parameter flags");
}

TEST_CASE_METHOD(Collective, "LoggedCollective: of several failures the first is noted, and each is thrown") {
  std::vector<WorkPtr> works;
  std::vector<TensorFuture> futures;
  for (int i = 0; i < 5; ++i) {
    futures.push_back(pending());
    works.push_back(begin("bucket").run([&] { return work_of(futures.back()); }));
  }
  for (const size_t i : {3U, 0U, 4U, 1U, 2U})
    futures[i]->setError(std::make_exception_ptr(std::runtime_error("cause " + std::to_string(i))));
  CHECK_THAT(note_->get(), ContainsSubstring("(number 3) failed: cause 3"));
  for (size_t i = 0; i < works.size(); ++i) {
    const std::string own = "(number " + std::to_string(i) + ") failed: cause " + std::to_string(i);
    CHECK_THAT(error_of<std::exception>([&] { works[i]->wait(); }), ContainsSubstring(own));
  }
}

TEST_CASE("LoggedCollective: without a note it fails with the same words") {
  const LoggedCollective collective(test::unconnected_rank(0, 2), "sum");
  CHECK(error_of<std::runtime_error>([&] { collective.fail(std::domain_error("gone")); }) ==
        "rank 0 of 2: sum (number 0) failed: gone");
}

TEST_CASE("LoggedCollective: buckets are told by their size in memory") {
  CHECK(bucket_text(at::ones({83})) == "all_reduce of a gradient bucket of 332 bytes");
  CHECK(bucket_text(at::ones({3}, at::kHalf)) == "all_reduce of a gradient bucket of 6 bytes");
  CHECK(bucket_text(at::ones({}, at::kComplexDouble)) == "all_reduce of a gradient bucket of 16 bytes");
  CHECK(bucket_text(at::ones({0})) == "all_reduce of a gradient bucket of 0 bytes");
  CHECK(bucket_text(at::ones({2, 3}).to_sparse()) == "all_reduce of a sparse gradient");
}

class OnEveryWire : protected test::EveryWireAndSize {};

// Collectives of random sizes, under way at once and waited for in another order on each rank.
TEST_CASE_METHOD(OnEveryWire, "LoggedCollective: sums of a group are there when its Work says so") {
  run([](const GroupHandle& group) {
    const auto c10d_group = group.state().group("test");
    std::mt19937 same(7);
    std::vector<at::Tensor> tensors;
    std::vector<WorkPtr> works;
    for (int i = 0; i < 12; ++i) {
      const auto size = static_cast<int64_t>(same() % 3000);
      tensors.push_back(at::full({size}, static_cast<float>(i + group.rank())));
      std::vector<at::Tensor> list{tensors.back()};
      works.push_back(LoggedCollective(group, "sum").run([&] { return c10d_group->allreduce(list); }));
    }
    std::vector<size_t> order(works.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::mt19937 own(static_cast<unsigned>(group.rank()));
    std::shuffle(order.begin(), order.end(), own);
    const auto n = static_cast<float>(group.size());
    for (const size_t i : order) {
      works[i]->wait();
      const float sum = n * static_cast<float>(i) + n * (n - 1) / 2;
      RANK_CHECK_THAT(tensors[i], EqualsTensor(at::full_like(tensors[i], sum)));
    }
    for (const CallRecord& call : group.state().log().report().calls) RANK_CHECK(call.ended);
  });
}

TEST_CASE("LoggedCollective: a rank that does not take part is named, and the note has it") {
  std::atomic<bool> is_over{false};
  test::run_ranks(2,
                  [&](const GroupHandle& group) {
                    if (group.rank() == 1) {
                      while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                      return;
                    }
                    const auto note = std::make_shared<ReductionFailure>();
                    std::vector<at::Tensor> list{at::ones({5})};
                    const WorkPtr work = LoggedCollective(group, "sum", note).run([&] {
                      return group.state().group("test")->allreduce(list);
                    });
                    const std::string error = error_of<std::exception>([&] { work->wait(); });
                    RANK_CHECK_THAT(error, StartsWith("rank 0 of 2: sum (number 0) failed: ") &&
                                               ContainsSubstring("did not take part in it: rank 1"));
                    RANK_CHECK_THAT(error, StartsWith(note->get()));
                    is_over = true;
                  },
                  {.timeout = std::chrono::seconds(1)});
}

}  // namespace
}  // namespace ddp::detail
