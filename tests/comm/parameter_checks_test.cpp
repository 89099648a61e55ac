// What has to be true of parameters before their gradients can be reduced, on this rank and on all.
#include "comm/reducer/parameter_checks.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "comm/group/group_state.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/matchers.h"
#include "tests/support/rank_checks.h"
#include "tests/support/tensors.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using test::error_of;
using Tensors = std::vector<at::Tensor>;

const at::Device kMetaDevice(at::kMeta);

at::Tensor on_meta(at::IntArrayRef shape) {
  return at::empty(shape, at::TensorOptions(kMetaDevice));
}

class Devices : protected test::EveryWire {
 protected:
  void expect(const Tensors& parameters, const std::vector<std::string>& names, const std::string& error) const {
    run(2, [&](const GroupHandle& group) {
      const std::string told = error_of<std::invalid_argument>([&] { check_devices(parameters, names, group); });
      const std::string who = "rank " + std::to_string(group.rank()) + " of 2: DistributedDataParallel: ";
      RANK_CHECK_THAT(told, error.empty() ? StartsWith("no error") : StartsWith(who + error));
    });
  }
};

TEST_CASE_METHOD(Devices, "ParameterChecks: parameters on the group's device pass, whatever they are") {
  expect({}, {}, "");
  expect({at::ones({2, 3})}, {"weight"}, "");
  expect({at::zeros({}), at::zeros({0, 7}), at::ones({4, 3}).t(), at::ones({2}, at::kComplexDouble),
          at::ones({2}, at::kBFloat16), at::ones({1, 2}).expand({5, 2})},
         {"a", "b", "c", "d", "e", "f"}, "");
}

TEST_CASE_METHOD(Devices, "ParameterChecks: one on a device that no backend serves is named, with what to do") {
  expect({on_meta({2})}, {"layer.weight"},
         "parameter 'layer.weight' is on meta, which backend '" + std::string(test::backend_of(wire_)) +
             "' does not support: move the model to cpu first");
  expect({on_meta({0}), on_meta({})}, {"empty", "scalar"}, "parameter 'empty' is on meta");
}

TEST_CASE_METHOD(Devices,
                 "ParameterChecks: of several types of device the first that differs is named with the first") {
  expect({at::ones({1}), at::ones({1}), on_meta({1}), on_meta({2})}, {"a", "b", "c", "d"},
         "parameter 'c' is on meta and 'a' on cpu; all parameters must be on one type of device");
  expect({on_meta({1}), at::ones({1})}, {"a", "b"}, "parameter 'a' is on meta, which backend");
}

class Comparisons : protected test::EveryWireAndSize {
 protected:
  static void expect_in_step(const GroupHandle& group) {
    const at::Tensor sum = at::ones({2});
    all_reduce(sum, group);
    RANK_CHECK_THAT(sum, test::EqualsTensor(at::full({2}, static_cast<float>(group.size()))));
  }
};

TEST_CASE_METHOD(Comparisons, "ParameterChecks: equal parameters pass on all ranks, however odd and many they are") {
  run([](const GroupHandle& group) {
    Tensors many;
    for (int64_t i = 0; i < 300; ++i) many.push_back(at::full({i % 5, i % 3}, static_cast<float>(group.rank())));
    const std::vector<Tensors> models{
        {at::ones({2, 3})},
        {at::zeros({})},
        {at::zeros({0}), at::zeros({0, 4}), at::zeros({4, 0})},
        {at::ones({4, 3}).t(), at::ones({2, 3, 4, 5}).to(at::MemoryFormat::ChannelsLast),
         at::ones({6}).as_strided({3}, {2})},
        {at::ones({2}, at::kComplexFloat), at::ones({2}, at::kHalf), at::ones({2}, at::kFloat8_e4m3fn)},
        {at::ones({1, 1, 1, 1, 1, 1, 1, 1, 1})},
        many};
    for (const Tensors& model : models) {
      for (int round = 0; round < 2; ++round) {
        const std::string error = error_of([&] { verify_parameters(model, group); });
        RANK_CHECK(error == "no error");
      }
    }
    for (const detail::CallRecord& call : group.state().log().report().calls) {
      RANK_CHECK(call.signature == "DistributedDataParallel's comparison of parameters");
      RANK_CHECK(call.ended);
    }
    expect_in_step(group);
  });
}

// What the last rank has in place of the others' model; the words are of its error. Of other numbers of dimensions c10d
// broadcasts lists of other lengths, for which gloo ends the process: compare_with_other_ranks() comes before.
struct Difference {
  Tensors other;
  std::vector<std::string> words;
};

TEST_CASE_METHOD(Comparisons, "ParameterChecks: the rank that differs from rank 0 says how, and where") {
  if (size() == 1) return;
  const Tensors usual{at::ones({2, 3}), at::ones({4, 5})};
  const std::vector<Difference> differences{
      {{at::ones({2, 3}), at::ones({5, 4})}, {"params[1]", "sizes [5, 4]"}},
      {{at::ones({3, 2}), at::ones({4, 5})}, {"params[0]", "sizes [3, 2]"}},
      {{at::ones({2, 3}), at::ones({5, 4}).t()}, {"params[1]", "strides"}},
  };
  run([&](const GroupHandle& group) {
    const bool is_odd = group.rank() == group.size() - 1;
    const std::string begin = "rank " + std::to_string(group.rank()) + " of " + std::to_string(group.size()) +
                              ": DistributedDataParallel: the ranks' parameters could not be compared: ";
    for (const Difference& difference : differences) {
      const std::string error =
          error_of<std::runtime_error>([&] { verify_parameters(is_odd ? difference.other : usual, group); });
      if (!is_odd) {
        RANK_CHECK(error == "no error");
      } else {
        RANK_CHECK_THAT(error, StartsWith(begin) && test::ContainsAll(difference.words));
        RANK_CHECK_THAT(error, !ContainsSubstring("frame #"));
      }
      expect_in_step(group);
    }
  });
}

TEST_CASE_METHOD(Comparisons, "ParameterChecks: another number of parameters is an error of every rank") {
  if (size() == 1) return;
  run([](const GroupHandle& group) {
    const bool is_odd = group.rank() == 0;
    for (const Tensors& other : {Tensors{at::ones({2})}, Tensors(3, at::ones({2})), Tensors(500, at::ones({2}))}) {
      const Tensors usual(2, at::ones({2}));
      const std::string error = error_of<std::runtime_error>([&] { verify_parameters(is_odd ? other : usual, group); });
      RANK_CHECK_THAT(error, StartsWith("rank " + std::to_string(group.rank()) + " of ") &&
                                 ContainsSubstring("could not be compared"));
      expect_in_step(group);
    }
  });
}

TEST_CASE("ParameterChecks: on a closed group the comparison says so") {
  ProcessGroup owner = init_process_group({.backend = "gloo", .rank_info = RankInfo{}});
  const GroupHandle group = owner;
  owner.close();
  CHECK_THAT(error_of<std::runtime_error>([&] { verify_parameters({at::ones({1})}, group); }),
             StartsWith("rank 0 of 1") && ContainsSubstring("DistributedDataParallel") && ContainsSubstring("closed"));
}

TEST_CASE("ParameterChecks: a rank that does not come to the comparison is named") {
  std::atomic<bool> is_over{false};
  test::run_ranks(2,
                  [&](const GroupHandle& group) {
                    if (group.rank() == 1) {
                      while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                      return;
                    }
                    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { verify_parameters({at::ones({1})}, group); }),
                                    StartsWith("rank 0 of 2: DistributedDataParallel: ") &&
                                        ContainsSubstring("did not take part in it: rank 1"));
                    is_over = true;
                  },
                  {.timeout = std::chrono::seconds(1)});
}

}  // namespace
}  // namespace ddp
