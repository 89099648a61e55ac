// Texts, JSON, single numbers and seeds of all ranks.
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/manual_seed.h>
#include <ddprun/comm/process_group.h>

#include "tests/support/captured_output.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using test::EqualsTensor;
using test::error_of;
using test::here;

constexpr int kObjectRanks = 3;

class Objects : protected test::EveryWire {
 protected:
  void on_ranks(const std::function<void(const GroupHandle&)>& body) const { run(kObjectRanks, body); }
};

TEST_CASE_METHOD(Objects, "Objects: each rank gets its text of the root's list") {
  on_ranks([](const GroupHandle& group) {
    for (int root = 0; root < kObjectRanks; ++root) {
      const std::vector<std::string> texts{"", std::string(1000, 'x'), std::string("a\0b", 3)};
      const bool is_root = group.rank() == root;
      const std::string mine = scatter_string(is_root ? texts : std::vector<std::string>{}, root, group);
      RANK_CHECK(mine == texts[static_cast<size_t>(group.rank())]);
      const std::vector<json> values{1, {{"rank", 1}}, nullptr};
      RANK_CHECK(scatter_json(is_root ? values : std::vector<json>{}, root, group) ==
                 values[static_cast<size_t>(group.rank())]);
      RANK_CHECK(scatter_string(is_root ? std::vector<std::string>(3) : std::vector<std::string>{}, root, group) == "");
    }
  });
}

TEST_CASE("Objects: a list to scatter needs a text for each rank") {
  test::run_ranks(2, [](const GroupHandle& group) {
    if (group.rank() == 0) {
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { scatter_string({"one"}, 0, group); }),
                      ContainsSubstring("scatter_string: expected one text per rank, 2, got 1"));
    }
    RANK_CHECK(scatter_string({"zero", "one"}, 0, group) == (group.rank() == 0 ? "zero" : "one"));
  });
}

TEST_CASE("Objects: an error names the function that the program has called") {
  for (const auto wire : test::wires({test::Wire::kGloo, test::Wire::kShm})) {
    test::run_ranks(2,
                    [](const GroupHandle& group) {
                      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { send_strings({}, group.rank(), group); }),
                                      ContainsSubstring("send_strings: peer "));
                      RANK_CHECK_THAT(
                          error_of<std::invalid_argument>([&] { recv_strings(1 - group.rank(), group, -1); }),
                          ContainsSubstring("recv_strings: expected a tag of at least 0, got -1"));
                      if (group.rank() == 1) return;
                      RANK_CHECK_THAT(error_of<std::runtime_error>([&] { recv_strings(1, group, 5); }),
                                      ContainsSubstring("recv_strings from rank 1, tag 5 of a Long tensor"));
                    },
                    {.wire = wire, .timeout = std::chrono::seconds(2)});
    const std::vector<std::pair<std::string, std::function<void(const GroupHandle&)>>> calls{
        {"scatter_string", [](const GroupHandle& group) { scatter_string({}, 1, group); }},
        {"broadcast_string", [](const GroupHandle& group) { broadcast_string("", 1, group); }},
        {"gather_strings", [](const GroupHandle& group) { gather_strings("", 1, group); }},
        {"all_gather_strings", [](const GroupHandle& group) { all_gather_strings("", group); }}};
    for (const auto& [name, call] : calls) {
      const auto without_rank_1 = [&name = name, &call = call](const GroupHandle& group) {
        if (group.rank() == 1) return;
        RANK_CHECK_THAT(error_of<std::runtime_error>([&] { call(group); }), ContainsSubstring(name + " (number 0)"));
      };
      test::run_ranks(2, without_rank_1, {.wire = wire, .timeout = std::chrono::seconds(2)});
    }
  }
}

TEST_CASE("Objects: a message that is not a list of texts is an error, and the group stays usable") {
  const std::vector<at::Tensor> of_equal_size{at::tensor({3, 40, 80}, at::kLong),
                                              at::full({3}, int64_t{1} << 60, at::kLong)};
  // Gloo delivers these as well.
  const std::vector<at::Tensor> smaller{at::ones({0}), at::ones({1}), at::tensor({3, 40}, at::kLong),
                                        at::tensor({-1, -40}, at::kLong)};
  for (const auto wire : test::wires({test::Wire::kGloo, test::Wire::kShm})) {
    std::vector<at::Tensor> messages = of_equal_size;
    if (wire == test::Wire::kGloo) messages.insert(messages.end(), smaller.begin(), smaller.end());
    test::run_ranks(2,
                    [&](const GroupHandle& group) {
                      for (const at::Tensor& message : messages) {
                        if (group.rank() == 0) {
                          send(here(message.clone()), 1, group, 5);
                          send_strings({"next"}, 1, group, 5);
                        } else {
                          RANK_CHECK_THAT(error_of<std::runtime_error>([&] { recv_strings(0, group, 5); }),
                                          ContainsSubstring("rank 0 with tag 5 is not a list that send_strings() has"));
                          RANK_CHECK(recv_strings(0, group, 5) == std::vector<std::string>{"next"});
                        }
                      }
                    },
                    {.wire = wire});
  }
}

TEST_CASE("Objects: texts whose lengths do not add up are an error") {
  for (const auto wire : test::wires({test::Wire::kGloo, test::Wire::kShm})) {
    test::run_ranks(2,
                    [](const GroupHandle& group) {
                      for (const int64_t wrong : {int64_t{-1}, int64_t{1}, int64_t{3}, int64_t{1} << 62}) {
                        if (group.rank() == 0) {
                          send_strings({"ab", "c"}, 1, group, 5);
                          RANK_CHECK_THAT(error_of<std::runtime_error>([&] { recv_strings(1, group, 6); }),
                                          ContainsSubstring("is not a list that send_strings() has sent"));
                          continue;
                        }
                        // Takes both messages, and sends them back with another length of the first text.
                        const at::Tensor header = here(at::zeros({3}, at::kLong));
                        const at::Tensor bytes = here(at::zeros({19}, at::kByte));
                        recv(header, 0, group, 5);
                        recv(bytes, 0, group, 5);
                        bytes.narrow(0, 0, 8).view(at::kLong).fill_(wrong);
                        send(header, 0, group, 6);
                        send(bytes, 0, group, 6);
                      }
                    },
                    {.wire = wire});
  }
}

TEST_CASE("Objects: on gloo a tensor is not taken for a text, nor one function's text for another's") {
  using Call = std::function<void(const GroupHandle&)>;
  const auto tensor = [](const GroupHandle& group) { broadcast(here(at::tensor({7, 7}, at::kLong)), 0, group); };
  const std::vector<std::pair<Call, Call>> calls{
      {tensor, [](const GroupHandle& group) { broadcast_string("", 0, group); }},
      {tensor, [](const GroupHandle& group) { scatter_string({}, 0, group); }},
      {[](const GroupHandle& group) { broadcast_string("", 0, group); },
       [](const GroupHandle& group) { scatter_string({}, 0, group); }},
      {[](const GroupHandle& group) {
         all_gather(here(at::tensor({7, 7}, at::kLong)), group);
       },
       [](const GroupHandle& group) { all_gather_strings("", group); }},
      {[](const GroupHandle& group) {
         all_gather(here(at::tensor({7, 7}, at::kLong)), group);
       },
       [](const GroupHandle& group) { gather_strings("", 1, group); }}};
  for (const auto& [of_rank_0, of_rank_1] : calls) {
    test::run_ranks(2,
                    [&of_rank_0 = of_rank_0, &of_rank_1 = of_rank_1](const GroupHandle& group) {
                      if (group.rank() == 0) return of_rank_0(group);
                      RANK_CHECK_THAT(error_of<std::runtime_error>([&] { of_rank_1(group); }),
                                      ContainsSubstring("the data that arrived from rank 0 was not sent by"));
                    },
                    {.wire = test::Wire::kGloo, .timeout = std::chrono::seconds(5)});
  }
}

TEST_CASE("Objects: lists of texts and of JSON values between two ranks") {
  for (const auto wire : test::wires({test::Wire::kGloo, test::Wire::kShm})) {
    test::run_ranks(2,
                    [](const GroupHandle& group) {
                      const std::vector<std::vector<std::string>> lists{
                          {}, {""}, {"a", "", std::string(100'000, 'b'), std::string("\0", 1)}};
                      const std::vector<json> values{{{"epoch", 3}}, "text", json::array()};
                      for (const auto& list : lists) {
                        if (group.rank() == 0) {
                          send_strings(list, 1, group, 5);
                        } else {
                          RANK_CHECK(recv_strings(0, group, 5) == list);
                        }
                      }
                      if (group.rank() == 1) {
                        send_json(values, 0, group);
                      } else {
                        RANK_CHECK(recv_json<json>(1, group) == values);
                      }
                    },
                    {.wire = wire});
  }
}

TEST_CASE_METHOD(Objects, "Objects: texts of any lengths arrive whole, also where some ranks have none") {
  on_ranks([](const GroupHandle& group) {
    for (const int64_t longest : {0, 1, 7, 100'000}) {
      const auto text_of = [longest](int rank) {
        return std::string(static_cast<size_t>(rank == 1 ? 0 : longest - longest / 3 * rank),
                           static_cast<char>(rank * 127));
      };
      const auto all = all_gather_strings(text_of(group.rank()), group);
      RANK_REQUIRE(all.size() == kObjectRanks);
      for (int rank = 0; rank < kObjectRanks; ++rank) RANK_CHECK(all[static_cast<size_t>(rank)] == text_of(rank));
      for (int root = 0; root < kObjectRanks; ++root) {
        const auto gathered = gather_strings(text_of(group.rank()), root, group);
        RANK_CHECK(gathered == (group.rank() == root ? all : std::vector<std::string>()));
        RANK_CHECK(broadcast_string(group.rank() == root ? text_of(root) : "longer than all of that", root, group) ==
                   text_of(root));
      }
    }
  });
}

TEST_CASE_METHOD(Objects, "Objects: JSON keeps its types") {
  const std::vector<json> values{
      nullptr, true, -5, 1.5, 18446744073709551615U, "\xC3\xA4\n\"", json::array(), {{"a", {1, nullptr, {{"b", ""}}}}}};
  on_ranks([&](const GroupHandle& group) {
    for (const json& value : values) {
      const json own{{"rank", group.rank()}, {"value", value}};
      const json of_one = broadcast_json(group.rank() == 1 ? own : json("ignored"), 1, group);
      RANK_CHECK(of_one == json{{"rank", 1}, {"value", value}});
      RANK_CHECK(of_one.at("value").type() == value.type());
      const auto all = all_gather_json(own, group);
      RANK_REQUIRE(all.size() == kObjectRanks);
      for (int rank = 0; rank < kObjectRanks; ++rank) RANK_CHECK(all[static_cast<size_t>(rank)].at("rank") == rank);
      const auto gathered = gather_json(own, 2, group);
      RANK_CHECK(gathered == (group.rank() == 2 ? all : std::vector<json>()));
    }
  });
}

// Reads no text that another class has written.
struct Strict {
  std::string text;
  std::string dump() const { return text; }
  static Strict parse(const std::string& text) {
    if (text == "bad") throw std::domain_error("not mine");
    return {text};
  }
};

TEST_CASE_METHOD(Objects, "Objects: what parse throws passes through, and the ranks stay in step") {
  on_ranks([](const GroupHandle& group) {
    const Strict own{group.rank() == 1 ? "bad" : "good"};
    RANK_CHECK_THROWS_AS(all_gather_json(own, group), std::domain_error);
    RANK_CHECK_THROWS_AS(broadcast_json(own, 1, group), std::domain_error);
    if (group.rank() == 0) RANK_CHECK_THROWS_AS(gather_json(own, 0, group), std::domain_error);
    if (group.rank() != 0) RANK_CHECK(gather_json(own, 0, group).empty());
    RANK_CHECK(broadcast_json(own, 2, group).text == "good");
  });
}

TEST_CASE_METHOD(Objects, "Objects: a root that is not a rank is refused before anything is sent") {
  on_ranks([](const GroupHandle& group) {
    for (const int root : {-1, kObjectRanks, 1 << 30}) {
      const auto refusal = ContainsSubstring("root " + std::to_string(root) + " is not a rank: expected 0 to 2");
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { broadcast_string("", root, group); }), refusal);
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { gather_strings("", root, group); }), refusal);
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { broadcast_json(json(), root, group); }), refusal);
    }
    RANK_CHECK(broadcast_string("still in step", 0, group) == "still in step");
  });
}

TEST_CASE_METHOD(Objects, "ReduceValue: is the mean or the sum, in place and of any shape") {
  on_ranks([](const GroupHandle& group) {
    const auto rank = static_cast<float>(group.rank());
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1}, {2, 3}, {0}}) {
      const at::Tensor mean = here(at::full(shape, rank));
      const at::Tensor returned = reduce_value(mean, group);
      RANK_CHECK(returned.is_same(mean));
      RANK_CHECK_THAT(mean, EqualsTensor(at::full(shape, 1.0F)));
      const at::Tensor sum = here(at::full(shape, rank));
      reduce_value(sum, group, /*average=*/false);
      RANK_CHECK_THAT(sum, EqualsTensor(at::full(shape, 3.0F)));
    }
    at::Tensor counts = here(at::full({2}, group.rank(), at::kLong));
    RANK_CHECK_THAT(reduce_value(counts, group, false), EqualsTensor(at::full({2}, 3, at::kLong)));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { reduce_value(counts, group); }),
                    ContainsSubstring("the average needs a floating-point dtype, got a Long tensor"));
    RANK_CHECK_THAT(
        error_of<std::invalid_argument>([&] { reduce_value(here(at::zeros({4})).slice(0, 0, 4, 2), group); }),
        ContainsSubstring(".contiguous()"));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { reduce_value(at::Tensor(), group); }),
                    ContainsSubstring("undefined"));
  });
}

TEST_CASE_METHOD(Objects, "ReduceTensor: leaves its argument alone, which may have gaps or a graph") {
  on_ranks([](const GroupHandle& group) {
    const at::Tensor memory = here(at::arange(8, at::kFloat)).view({2, 4}).add(group.rank());
    const at::Tensor before = memory.clone();
    RANK_CHECK_THAT(reduce_tensor(memory.t(), group), EqualsTensor(before.sub(group.rank()).add(1).t().contiguous()));
    RANK_CHECK_THAT(memory, EqualsTensor(before));
    const at::Tensor leaf = here(at::full({2}, static_cast<double>(group.rank()), at::kDouble)).requires_grad_();
    for (const at::Tensor& value : {leaf, leaf.mul(1)}) {
      const at::Tensor mean = reduce_tensor(value, group);
      RANK_CHECK_FALSE(mean.requires_grad());
      RANK_CHECK_THAT(mean, EqualsTensor(at::ones({2}, at::kDouble)));
    }
    RANK_CHECK_THAT(leaf.detach(), EqualsTensor(at::full({2}, static_cast<double>(group.rank()), at::kDouble)));
    const at::Tensor conjugated =
        at::complex(here(at::ones({2})), here(at::full({2}, static_cast<float>(group.rank())))).conj();
    RANK_CHECK_THAT(reduce_tensor(conjugated, group, false),
                    EqualsTensor(at::complex(here(at::full({2}, 3.0F)), here(at::full({2}, -3.0F)))));
  });
}

struct CountsItsFormatting {
  int* times;
};
std::ostream& operator<<(std::ostream& stream, const CountsItsFormatting& part) {
  ++*part.times;
  return stream << "formatted";
}

TEST_CASE("MainProcess: is rank 0, and only there a line is formatted and printed") {
  int times = 0;
  std::vector<bool> are_main;
  std::string text;
  {
    const test::CapturedStdout said;
    for (const int rank : {2, 0, 1}) {
      const GroupHandle group = test::unconnected_rank(rank, 3);
      are_main.push_back(is_main_process(group));
      print_on_main(group, "loss ", 0.5, ' ', CountsItsFormatting{&times}, " %s %n");
      print_on_main(group);
    }
    text = said.text();
  }
  CHECK(are_main == std::vector<bool>{false, true, false});
  CHECK(text == "loss 0.5 formatted %s %n\n\n");
  CHECK(times == 1);
}

at::Tensor three_numbers() {
  return here(at::randint(int64_t{1} << 40, {3}, at::kLong));
}

// Expected values: torch.randint(1 << 40, (3,)) of a generator seeded with splitmix64's mixture, computed in Python.
// Runs are repeated from their seeds: these numbers may never change.
TEST_CASE("ManualSeed: the stream of a seed and a rank is the same in every version") {
  const auto [seed, rank, expected] = GENERATE(table<uint64_t, int, std::vector<int64_t>>({
      {0, 0, {587423053831, 857743703941, 1050856993396}},
      {0, 1, {1057549715991, 485020007269, 900039302234}},
      {0, 3, {465912231302, 785294020283, 190620540704}},
      {1, 0, {115044263272, 1010485894935, 806301188470}},
      {1, 1, {546797517603, 725654570011, 157818072489}},
      {1, 3, {785490321539, 228792117866, 210878671152}},
      {42, 0, {396808326892, 304293607419, 274796956435}},
      {42, 1, {539201022073, 288386540516, 443043639525}},
      {42, 3, {920046508228, 785731380101, 869199269757}},
      {(uint64_t{1} << 63) + 5, 0, {46871963414, 493576722405, 133242503771}},
      {(uint64_t{1} << 63) + 5, 1, {562241827987, 568876652335, 803014581177}},
      {(uint64_t{1} << 63) + 5, 3, {316406561545, 634436051936, 174024307879}},
  }));
  INFO("seed " << seed << ", rank " << rank);
  const GroupHandle group = test::unconnected_rank(rank, 4);
  manual_seed(seed, group);
  const at::Tensor common = three_numbers();
  at::manual_seed(seed);
  CHECK(common.equal(three_numbers()));
  take_rank_stream(group);
  CHECK(three_numbers().equal(here(at::tensor(expected, at::kLong))));
  seed_per_rank(seed, group);
  CHECK(three_numbers().equal(here(at::tensor(expected, at::kLong))));
}

TEST_CASE("ManualSeed: without a seed the stream goes on as it was") {
  const GroupHandle group = test::unconnected_rank(1, 2);
  at::manual_seed(9);
  const at::Tensor first = three_numbers();
  at::manual_seed(9);
  take_rank_stream(group);
  CHECK(three_numbers().equal(first));
  UNSCOPED_INFO("of several seeds the last one counts");
  manual_seed(1, group);
  manual_seed(0, group);
  take_rank_stream(group);
  CHECK(three_numbers().equal(here(at::tensor({1057549715991, 485020007269, 900039302234}, at::kLong))));
}

}  // namespace
}  // namespace ddp
