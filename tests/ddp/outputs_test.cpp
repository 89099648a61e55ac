// What a forward returns: which tensors are found in it, which parameters it leaves unused, and what cannot be looked
// into.
#include <torch/csrc/autograd/function.h>

#include <any>
#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/ddp/distributed_data_parallel.h>

#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/every_wire.h"
#include "tests/support/matchers.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::ElementsAre;
using test::expect_close;
using test::expect_equal;
using test::here;
using test::make;
using test::mean_gradients;
using test::message_of;
using test::numbers;
using test::placed;
using test::run_ranks;

class Outputs : protected test::EveryWire {};

// What a forward may return.
struct Answer {
  std::vector<torch::Tensor> parts{};
  std::optional<torch::Tensor> extra{};
  int count = 0;
};
template <typename Visit>
void visit_tensors(Answer& answer, Visit&& visit) {
  visit(answer.parts);
  visit(answer.extra);
}
struct Opaque {
  torch::Tensor hidden;
};

TEST_CASE("OutputTensors: finds them in every known container") {
  const auto count = [](auto value) {
    int found = 0;
    const bool known = for_each_tensor(value, [&](auto& tensor) { found += tensor.defined() ? 1 : 100; });
    return known ? found : -1;
  };
  const auto t = here(torch::ones({1}));
  CHECK(count(t) == 1);
  CHECK(count(std::make_tuple(t, 3, std::string("x"), t)) == 2);
  CHECK(count(std::pair(t, 1.5)) == 1);
  CHECK(count(std::vector<torch::Tensor>{t, t, t}) == 3);
  CHECK(count(std::map<std::string, std::vector<torch::Tensor>>{{"a", {t}}, {"b", {t, t}}}) == 3);
  CHECK(count(std::optional<torch::Tensor>()) == 0);
  CHECK(count(std::variant<int, torch::Tensor>(t)) == 1);
  CHECK(count(std::make_shared<torch::Tensor>(t)) == 1);
  CHECK(count(torch::OrderedDict<std::string, torch::Tensor>({{"a", t}})) == 1);
  CHECK(count(Answer{.parts = {t, t}, .extra = t}) == 3);
  CHECK(count(std::vector<Answer>{{.parts = {t}}, {.extra = t}}) == 2);
  CHECK(count(Opaque{t}) == -1);
  CHECK(count(std::array<torch::Tensor, 2>{t, t}) == 2);
  CHECK(count(std::vector<bool>{true, false}) == 0);
}

// Ranges and pointers that a program has made for itself, beside more.
struct Detections : std::vector<torch::Tensor> {
  torch::Tensor scores;
};
struct Owner {
  using element_type = torch::Tensor;
  torch::Tensor tensor, other;
  explicit operator bool() const { return true; }
  torch::Tensor& operator*() { return tensor; }
};
struct TwoInOne : torch::Tensor {
  torch::Tensor other;
};

TEST_CASE("OutputTensors: says so where a type may hold others than those it shows") {
  const auto t = here(torch::ones({1}));
  const auto is_known = [](auto value) { return for_each_tensor(value, [](auto& /*tensor*/) {}); };
  CHECK_FALSE(is_known(Detections()));
  CHECK_FALSE(is_known(Owner{.tensor = t, .other = t}));
  CHECK_FALSE(is_known(TwoInOne()));
  CHECK_FALSE(is_known(std::any(t)));
  CHECK_FALSE(is_known(c10::IValue(t)));
  CHECK_FALSE(is_known(c10::Dict<std::string, torch::Tensor>()));
  CHECK_FALSE(is_known(std::ref(t)));
  CHECK_FALSE(is_known(std::shared_ptr<torch::Tensor[]>(new torch::Tensor[2])));
  CHECK_FALSE(is_known(std::make_unique<torch::Tensor[]>(2)));
  CHECK_FALSE(is_known(std::filesystem::path("a/b")));
  CHECK_FALSE(is_known(std::pair(t, Opaque{t})));
}

// `used` names the layers that a forward uses.
struct ChoiceImpl : torch::nn::Module {
  Answer forward(const torch::Tensor& x, int used) {
    Answer answer;
    if (used & 1) answer.parts.push_back(first(x));
    if (used & 2) answer.parts.push_back(second(x));
    if (used & 4) answer.extra = third(x);
    return answer;
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 2));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(6, 2));
  torch::nn::Linear third = register_module("third", torch::nn::Linear(6, 2));
};
TORCH_MODULE(Choice);

torch::Tensor loss_of(const Answer& answer) {
  torch::Tensor loss = here(torch::zeros({}));
  for (const auto& part : answer.parts) loss = loss + part.square().sum();
  return answer.extra ? loss + answer.extra->sum() : loss;
}

// One of two tensors, the other undefined.
struct EitherImpl : torch::nn::Module {
  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x, bool is_left) {
    return is_left ? std::pair(left(x), torch::Tensor()) : std::pair(torch::Tensor(), right(x));
  }
  torch::nn::Linear left = register_module("left", torch::nn::Linear(6, 2));
  torch::nn::Linear right = register_module("right", torch::nn::Linear(6, 2));
};
TORCH_MODULE(Either);

TEST_CASE_METHOD(Outputs, "Features: an output may have undefined tensors beside others") {
  run(2, [&](const GroupHandle& group) {
    auto net = make<Either>(1);
    DistributedDataParallel<Either> model(net, group, {.find_unused_parameters = true});
    for (const bool is_left : {true, false, true}) {
      net->zero_grad();
      const auto [left, right] = model(numbers({3, 6}, group.rank()), is_left);
      (is_left ? left : right).sum().backward();
      RANK_CHECK(net->left->weight.grad().defined() == is_left);
      RANK_CHECK(net->right->weight.grad().defined() != is_left);
    }
  });
}

TEST_CASE_METHOD(Outputs, "Features: unused parameters take the ranks that used them and stay alone if none did") {
  for (const bool views : {false, true}) {
    run(2, [&](const GroupHandle& group) {
      auto net = make<Choice>(1);
      DistributedDataParallel<Choice> model(net, group,
                                            {.find_unused_parameters = true, .gradient_as_bucket_view = views});
      // Rank 0 uses the first layer, rank 1 the second (and both the third in the last round).
      for (const int third : {0, 0, 4}) {
        net->zero_grad();
        const auto x = numbers({3, 6}, group.rank());
        loss_of(model(x, (1 << group.rank()) | third)).backward();
        const auto expected = mean_gradients<Choice>(1, 2, [&](Choice& alone, int rank) {
          loss_of(alone->forward(numbers({3, 6}, rank), (1 << rank) | third)).backward();
        });
        const auto parameters = net->parameters();
        for (size_t i = 0; i < parameters.size(); ++i) {
          {
            RANK_INFO(i);
            RANK_REQUIRE(parameters[i].grad().defined() == expected[i].defined());
          }
          if (!expected[i].defined()) continue;
          expect_close(parameters[i].grad(), expected[i]);
          RANK_CHECK_FALSE(parameters[i].grad().is_view());
        }
      }
      RANK_CHECK(model->logging_data().unused_parameters.size() == 2U);
    });
  }
}

TEST_CASE_METHOD(Outputs, "Features: no_sync with unused parameters reduces what any micro batch used") {
  run(2, [&](const GroupHandle& group) {
    auto net = make<Choice>(2);
    DistributedDataParallel<Choice> model(net, group, {.find_unused_parameters = true});
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      for (const int used : {1, 2}) {
        std::optional<NoSyncGuard> guard;
        if (used == 1) guard.emplace(model->no_sync());
        loss_of(model(numbers({3, 6}, group.rank() + used), used)).backward();
      }
      const auto expected = mean_gradients<Choice>(2, 2, [&](Choice& alone, int rank) {
        for (const int used : {1, 2}) loss_of(alone->forward(numbers({3, 6}, rank + used), used)).backward();
      });
      for (size_t i = 0; i < 4; ++i) expect_close(net->parameters()[i].grad(), expected[i]);
      RANK_CHECK_FALSE(net->third->weight.grad().defined());
    }
  });
}

TEST_CASE_METHOD(Outputs, "Features: an output that takes no part in the loss is an unused one") {
  run(2, [&](const GroupHandle& group) {
    auto net = make<Choice>(3);
    DistributedDataParallel<Choice> model(net, group, {.find_unused_parameters = true});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      const Answer answer = model(numbers({3, 6}, group.rank()), 7);
      (answer.parts[0].sum() + 0 * answer.parts[1].sum() + answer.extra->sum()).backward();
      expect_equal(net->second->weight.grad(), here(torch::zeros({2, 6})));
    }
  });
}

struct OpaqueNet : torch::nn::Module {
  Opaque forward(const torch::Tensor& x) { return {layer(x)}; }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(6, 2));
};

TEST_CASE("Features: an output of unknown type is refused only where it must be looked into") {
  run_ranks(2, [](const GroupHandle& group) {
    const auto x = numbers({3, 6}, 0);
    DistributedDataParallel<std::shared_ptr<OpaqueNet>> plain(placed(std::make_shared<OpaqueNet>()), group);
    plain(x).hidden.sum().backward();
    DistributedDataParallel<std::shared_ptr<OpaqueNet>> searching(placed(std::make_shared<OpaqueNet>()), group,
                                                                  {.find_unused_parameters = true});
    RANK_CHECK_THAT(message_of([&] { searching(x); }),
                    ContainsSubstring("visit_tensors") && ContainsSubstring("Opaque") && !ContainsSubstring("6Opaque"));
  });
}

// Outputs that can be looked into, but not written to.
struct Sealed {
  const torch::Tensor kept;
};
template <typename Visit>
void visit_tensors(Sealed& sealed, Visit&& visit) {
  visit(sealed.kept);
}
struct ByValue {
  torch::Tensor kept;
};
template <typename Visit>
void visit_tensors(ByValue output, Visit&& visit) {
  visit(output.kept);
}

template <typename Output>
struct Returns : torch::nn::Module {
  using Make = std::function<Output(const torch::Tensor&)>;
  explicit Returns(Make make) : make_output(std::move(make)) {}
  Output forward(const torch::Tensor& x) { return make_output(layer(x)); }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(6, 2));
  torch::nn::Linear unused = register_module("unused", torch::nn::Linear(6, 2));
  Make make_output;
};

// What the first forward throws, with both options that look into outputs; without them it must pass.
template <typename Output>
std::vector<std::string> refusals(const std::function<Output(const torch::Tensor&)>& make_output) {
  std::vector<std::string> messages;
  run_ranks(2, [&](const GroupHandle& group) {
    for (const DdpOptions& options :
         {DdpOptions{}, DdpOptions{.find_unused_parameters = true}, DdpOptions{.static_graph = true}}) {
      DistributedDataParallel<std::shared_ptr<Returns<Output>>> model(
          placed(std::make_shared<Returns<Output>>(make_output)), group, options);
      const std::string message = message_of([&] { model(numbers({3, 6}, 0)); });
      {
        const torch::NoGradGuard no_grad;
        RANK_INFO("a forward without gradients needs no sink");
        RANK_CHECK(message_of([&] { model(numbers({3, 6}, 0)); }) == "");
      }
      if (group.rank() == 0) messages.push_back(message);
    }
  });
  return messages;
}

using Found = torch::Tensor;
template <typename Output>
void expect_refused(const std::string& why, const std::function<Output(const Found&)>& make_output) {
  RANK_CHECK_THAT(
      refusals<Output>(make_output),
      ElementsAre(
          "", ContainsSubstring("rank 0 of 2") && ContainsSubstring("find_unused_parameters") && ContainsSubstring(why),
          ContainsSubstring("static_graph") && ContainsSubstring(why)));
}

// One for each rank: an output may refer to what the model keeps.
torch::Tensor& kept(const torch::Tensor& x) {
  static thread_local torch::Tensor tensor;
  return tensor = x;
}

TEST_CASE("Features: tensors that an output holds const are refused and never passed over") {
  const std::string why = "const";
  using Shared = std::shared_ptr<const torch::Tensor>;
  const auto shared = [](const Found& x) { return std::make_shared<const torch::Tensor>(x); };
  expect_refused<Shared>(why, shared);
  expect_refused<std::optional<Shared>>(why, [&](const Found& x) { return std::optional(shared(x)); });
  expect_refused<std::vector<Shared>>(why, [&](const Found& x) { return std::vector{shared(x)}; });
  expect_refused<std::map<int, Shared>>(why, [&](const Found& x) { return std::map<int, Shared>{{1, shared(x)}}; });
  expect_refused<std::unique_ptr<const std::vector<torch::Tensor>>>(
      why, [](const Found& x) { return std::make_unique<const std::vector<torch::Tensor>>(1, x); });
  expect_refused<std::pair<torch::Tensor, Shared>>(why, [&](const Found& x) { return std::pair(x * 1, shared(x)); });
  expect_refused<std::variant<int, Shared>>(why, [&](const Found& x) { return std::variant<int, Shared>(shared(x)); });
  expect_refused<Sealed>(why, [](const Found& x) { return Sealed{x}; });
  expect_refused<at::TensorList>(why, [](const Found& x) { return at::TensorList(kept(x)); });
  expect_refused<std::tuple<const torch::Tensor&>>(why,
                                                   [](const Found& x) { return std::tie(std::as_const(kept(x))); });
  expect_refused<const torch::Tensor*>(why, [](const Found& x) { return &kept(x); });
  expect_refused<std::span<const torch::Tensor>>(why,
                                                 [](const Found& x) { return std::span<const Found>(&kept(x), 1); });
}

TEST_CASE("Features: outputs that give copies of their tensors are refused and so is not an output") {
  expect_refused<ByValue>("returns copies", [](const Found& x) { return ByValue{x}; });
  expect_refused<void>("returns nothing", [](const Found& /*x*/) {});
}

TEST_CASE("Features: const tensors without a graph and two pointers to one output are no reason to refuse") {
  using Output =
      std::tuple<std::shared_ptr<torch::Tensor>, std::shared_ptr<torch::Tensor>, std::shared_ptr<const torch::Tensor>>;
  run_ranks(2, [](const GroupHandle& group) {
    const auto make_output = [](const Found& x) {
      const auto output = std::make_shared<torch::Tensor>(x);
      return Output(output, output, std::make_shared<const torch::Tensor>(x.detach()));
    };
    const auto net = placed(std::make_shared<Returns<Output>>(make_output));
    DistributedDataParallel<std::shared_ptr<Returns<Output>>> model(net, group, {.find_unused_parameters = true});
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      const auto [first, second, fixed] = model(numbers({3, 6}, group.rank()));
      RANK_CHECK_THAT(first->grad_fn()->name(), ContainsSubstring("Sink"));
      first->sum().backward();
      const auto all = all_gather(net->layer->weight.grad(), group);
      expect_equal(all[0], all[1]);
    }
  });
}

}  // namespace
}  // namespace ddp
