#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <atomic>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/detail/comm/wrapped_parameters.h>
#include <ddprun/syncbn/conversion.h>
#include <ddprun/syncbn/sync_batch_norm.h>

#include "tests/support/catch.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/syncbn/numbers.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::here;
using test::numbers;
using test::placed;
using test::run_ranks;
using test::unconnected_rank;
using torch::Tensor;

// Whether the dispatcher's way to batch norm leads through us.
bool intercepted() {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("aten::batch_norm", "")
      .hasKernelForDispatchKey(c10::DispatchKey::AutogradCPU);
}

struct InnerImpl : torch::nn::Module {
  InnerImpl() {
    register_module("norm3d", norm3d);
    register_module("list", list);
    register_module("dict", dict);
    list->push_back(torch::nn::BatchNorm3d(4));
    dict->update({{"one", torch::nn::BatchNorm3d(4).ptr()}});
  }
  Tensor forward(const Tensor& x) {
    Tensor y = norm3d(x);
    y = list->at<torch::nn::BatchNorm3dImpl>(0).forward(y);
    return dict["one"]->as<torch::nn::BatchNorm3d>()->forward(y);
  }
  torch::nn::BatchNorm3d norm3d{torch::nn::BatchNorm3dOptions(4).affine(false)};
  torch::nn::ModuleList list;
  torch::nn::ModuleDict dict;
};
TORCH_MODULE(Inner);

// A model whose author never heard of this library.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("norm1d", norm1d);
    register_module("norm2d", norm2d);
    register_module("body", body);
    register_module("inner", inner);
  }
  Tensor forward(const Tensor& x) {
    Tensor y = norm1d(x.flatten(2)).view(x.sizes());
    y = norm2d(y);
    return inner(body->forward(y).unsqueeze(2));
  }
  torch::nn::BatchNorm1d norm1d{torch::nn::BatchNorm1dOptions(4).track_running_stats(false)};
  torch::nn::BatchNorm2d norm2d{torch::nn::BatchNorm2dOptions(4).momentum(std::nullopt)};
  torch::nn::Sequential body{torch::nn::BatchNorm2d(4), torch::nn::BatchNorm2d(4)};
  Inner inner;
};
TORCH_MODULE(Net);

Net make_net() {
  Net net;
  net->to(torch::kDouble);
  return placed(net);
}

// Names and identities of everything that a model owns.
std::vector<std::pair<std::string, const void*>> inventory(const torch::nn::Module& model) {
  std::vector<std::pair<std::string, const void*>> all;
  for (const auto& item : model.named_parameters()) all.emplace_back(item.key(), item.value().unsafeGetTensorImpl());
  for (const auto& item : model.named_buffers()) all.emplace_back(item.key(), item.value().unsafeGetTensorImpl());
  for (const auto& item : model.named_modules("", false)) all.emplace_back(item.key(), item.value().get());
  return all;
}

TEST_CASE("Conversion: a typed model equals one process with the whole batch") {
  for (const auto wire : test::wires({test::Wire::kGloo, test::Wire::kShm, test::Wire::kLate})) {
    run_ranks(3,
              [](const GroupHandle& group) {
                Net whole = make_net();
                Net net = make_net();
                const auto before = inventory(*net);
                RANK_CHECK(convert_sync_batchnorm(net, group) == 7U);
                RANK_CHECK(inventory(*net) == before);
                RANK_CHECK(net->is_training());

                const std::vector<int64_t> sizes{3, 0, 4};
                const int64_t start = group.rank() == 0 ? 0 : 3;
                const int64_t own = sizes[static_cast<size_t>(group.rank())];
                for (uint64_t step = 0; step < 3; ++step) {
                  const Tensor all = numbers({7, 4, 3, 5}, step) * 3 + 1;
                  const Tensor dy = numbers({7, 4, 1, 3, 5}, 50 + step);
                  whole->zero_grad();
                  net->zero_grad();
                  const Tensor expected = whole(all);
                  expected.backward(dy);
                  const Tensor actual = net(all.narrow(0, start, own));
                  actual.backward(dy.narrow(0, start, own));
                  RANK_CHECK(torch::allclose(actual, expected.narrow(0, start, own), 1e-10, 1e-11));
                  for (const auto& item : net->named_parameters()) {
                    Tensor sum = item.value().grad().clone();
                    all_reduce(sum, group);
                    RANK_INFO(item.key());
                    RANK_CHECK(torch::allclose(sum, whole->named_parameters()[item.key()].grad(), 1e-9, 1e-10));
                  }
                }
                for (const auto& item : net->named_buffers()) {
                  const Tensor& buffer = item.value();
                  if (!buffer.defined()) continue;
                  {
                    RANK_INFO(item.key());
                    RANK_CHECK(torch::allclose(buffer, whole->named_buffers()[item.key()], 1e-11, 1e-12));
                  }
                  const Tensor of_all = all_gather(buffer.contiguous(), group);
                  for (int rank = 1; rank < group.size(); ++rank) RANK_CHECK(torch::equal(of_all[rank], of_all[0]));
                }
              },
              {.wire = wire});
  }
}

TEST_CASE("Conversion: eval mode communicates nothing also without running statistics") {
  Net net = make_net();
  Net plain = make_net();
  convert_sync_batchnorm(net, unconnected_rank(0, 2));
  const Tensor x = numbers({3, 4, 2, 2}, 1);
  UNSCOPED_INFO("in training it communicates");
  CHECK_THROWS(net(x));
  net->eval();
  plain->eval();
  CHECK(torch::equal(net(x), plain(x)));
  const torch::NoGradGuard no_grad;
  CHECK(torch::equal(net(x), plain(x)));
  const c10::InferenceMode inference;
  CHECK(torch::equal(net(x), plain(x)));
}

TEST_CASE("Conversion: frozen layers in eval stay local while the model trains") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = placed(torch::nn::Sequential{torch::nn::BatchNorm1d(3), torch::nn::BatchNorm1d(3)});
    convert_sync_batchnorm(net, group);
    auto& frozen = *net->ptr(0)->as<torch::nn::BatchNorm1d>();
    frozen.eval();
    for (Tensor& parameter : frozen.parameters()) parameter.set_requires_grad(false);
    const Tensor x = numbers({4, 3}, static_cast<uint64_t>(group.rank())).to(torch::kFloat);
    const Tensor y = net->forward(x);
    y.sum().backward();
    RANK_CHECK(torch::equal(frozen.running_mean, here(torch::zeros({3}))));
    RANK_CHECK_FALSE(frozen.weight.grad().defined());
    Tensor mean = y.detach().mean(0);
    all_reduce(mean, group);
    RANK_INFO("the other layer is synchronised");
    RANK_CHECK(mean.abs().max().item<float>() < 1e-5);
  });
}

TEST_CASE("Conversion: ends with the model") {
  CHECK_FALSE(intercepted());
  Net one = make_net();
  {
    Net two = make_net();
    convert_sync_batchnorm(one, unconnected_rank(0, 2));
    convert_sync_batchnorm(two, unconnected_rank(0, 2));
    CHECK(intercepted());
  }
  UNSCOPED_INFO("a converted model is left");
  CHECK(intercepted());
  one = nullptr;
  CHECK_FALSE(intercepted());
}

TEST_CASE("Conversion: a model that dies before its tensors is forgotten") {
  Tensor kept;
  {
    Net net = make_net();
    convert_sync_batchnorm(net, unconnected_rank(0, 2));
    kept = net->norm2d->running_mean;
  }
  const Tensor x = numbers({3, 4, 2, 2}, 1);
  torch::batch_norm(x, {}, {}, kept, here(torch::ones({4}, torch::kDouble)), true, 0.1, 1e-5, false);  // would throw
  kept = Tensor();
  CHECK_FALSE(intercepted());
}

TEST_CASE("Conversion: new models at old addresses are not converted") {
  const Tensor x = numbers({3, 4, 2, 2}, 1);
  const Tensor expected = make_net()(x);
  for (int i = 0; i < 50; ++i) {
    {
      Net net = make_net();
      convert_sync_batchnorm(net, unconnected_rank(0, 2));
      CHECK_THROWS(net(x));  // the second rank does not exist
    }
    Net fresh = make_net();
    CHECK(torch::equal(fresh(x), expected));
  }
}

TEST_CASE("Conversion: can be reverted") {
  Net net = make_net();
  Net plain = make_net();
  CHECK(revert_sync_batchnorm(net) == 0U);
  const auto before = inventory(*net);
  convert_sync_batchnorm(net, unconnected_rank(0, 2));
  CHECK(revert_sync_batchnorm(net) == 7U);
  CHECK(inventory(*net) == before);
  CHECK_FALSE(intercepted());
  const Tensor x = numbers({3, 4, 2, 2}, 1);
  CHECK(torch::equal(net(x), plain(x)));
  CHECK(revert_sync_batchnorm(net) == 0U);
}

TEST_CASE("Conversion: converting again replaces the group") {
  Net net = make_net();
  convert_sync_batchnorm(net, unconnected_rank(0, 2));
  convert_sync_batchnorm(net, unconnected_rank(0, 2));
  run_ranks(1, [&](const GroupHandle& group) {
    RANK_CHECK(convert_sync_batchnorm(net, group) == 7U);
    net(numbers({3, 4, 2, 2}, 1));  // a group of one: plain batch norm
  });
  CHECK(revert_sync_batchnorm(net) == 7U);
}

TEST_CASE("Conversion: survives moves, loading and cleared gradients") {
  Net net = make_net();
  convert_sync_batchnorm(net, unconnected_rank(0, 2));
  const Tensor x = numbers({3, 4, 2, 2}, 1);
  const auto expect_converted = [&](const Tensor& input) { CHECK_THROWS(net(input)); };
  net->to(torch::kFloat);
  expect_converted(x.to(torch::kFloat));
  net->to(torch::kDouble);
  std::stringstream stream;
  torch::save(make_net(), stream);
  torch::load(net, stream);
  expect_converted(x);
  net->zero_grad();
  net->norm2d->reset_running_stats();
  expect_converted(x);
}

TEST_CASE("Conversion: a clone and a loaded model are plain until they are converted") {
  Net net = make_net();
  convert_sync_batchnorm(net, unconnected_rank(0, 2));
  const Tensor x = numbers({3, 4, 2, 2}, 1);
  auto norm = placed(torch::nn::BatchNorm2d(4));
  norm->to(torch::kDouble);
  convert_sync_batchnorm(norm, unconnected_rank(0, 2));
  CHECK_THROWS(norm(x));
  auto copy = std::dynamic_pointer_cast<torch::nn::BatchNorm2dImpl>(norm->clone());
  REQUIRE(copy);
  copy->forward(x);
  CHECK(convert_sync_batchnorm(copy, unconnected_rank(0, 2)) == 1U);
  CHECK_THROWS(copy->forward(x));

  std::stringstream stream;
  torch::save(net, stream);
  Net loaded = make_net();
  torch::load(loaded, stream);
  loaded(x);
}

TEST_CASE("Conversion: a replaced tensor is noticed by another layer") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = placed(torch::nn::Sequential{torch::nn::BatchNorm1d(3), torch::nn::BatchNorm1d(3)});
    convert_sync_batchnorm(net, group);
    auto& second = *net->ptr(1)->as<torch::nn::BatchNorm1d>();
    second.running_mean = here(torch::zeros({3}));
    try {
      net->forward(here(torch::ones({4, 3})));
      RANK_FAIL("did not throw");
    } catch (const std::logic_error& error) {
      RANK_CHECK_THAT(error.what(),
                      ContainsSubstring("SyncBatchNorm '1'") && ContainsSubstring("replaced by another tensor"));
    }
    convert_sync_batchnorm(net, group);
    net->forward(numbers({4, 3}, 1).to(torch::kFloat));
  });
}

TEST_CASE("Conversion: every kind of reference to a model is taken") {
  const auto group = unconnected_rank(0, 2);
  auto pointer = std::make_shared<NetImpl>();
  CHECK(convert_sync_batchnorm(pointer, group) == 7U);
  CHECK(convert_sync_batchnorm(*pointer, group) == 7U);
  torch::nn::BatchNorm2d alone(3);
  CHECK(convert_sync_batchnorm(alone, group) == 1U);
  NetImpl on_the_stack;
  CHECK(convert_sync_batchnorm(on_the_stack, group) == 7U);
  torch::nn::Linear without(3, 3);
  CHECK(convert_sync_batchnorm(without, group) == 0U);
  CHECK(convert_syncbn_model(pointer, group) == 7U);
  CHECK(convert_syncbn_model(alone, group) == 1U);
  CHECK(revert_sync_batchnorm(*pointer) == 7U);
}

TEST_CASE("Conversion: a layer that two members share counts once") {
  torch::nn::BatchNorm1d shared(3);
  const torch::nn::Sequential net{shared, shared};
  CHECK(convert_sync_batchnorm(net, unconnected_rank(0, 2)) == 1U);
}

torch::nn::BatchNorm2d anonymous() {
  return torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(4).affine(false).track_running_stats(false));
}

struct AnonymousImpl : torch::nn::Module {
  AnonymousImpl() {
    register_module("known", known);
    register_module("unknown", unknown);
  }
  torch::nn::BatchNorm2d known{4};
  torch::nn::BatchNorm2d unknown = anonymous();
};

TEST_CASE("Conversion: a typed layer without any tensor is refused by name and nothing is converted") {
  const auto net = std::make_shared<AnonymousImpl>();
  try {
    convert_sync_batchnorm(net, unconnected_rank(1, 2));
    FAIL("did not throw");
  } catch (const std::invalid_argument& error) {
    CHECK_THAT(error.what(), ContainsSubstring("rank 1") && ContainsSubstring("'unknown'") &&
                                 ContainsSubstring("Nothing was converted"));
  }
  CHECK_FALSE(intercepted());
  CHECK(revert_sync_batchnorm(net) == 0U);
}

TEST_CASE("Conversion: a layer without any tensor is replaced where a sequential calls it") {
  run_ranks(2, [](const GroupHandle& group) {
    torch::nn::Sequential net;
    net->push_back("first", torch::nn::BatchNorm2d(4));
    net->push_back("unknown", anonymous());
    placed(net)->to(torch::kDouble);
    const auto original = net->ptr(1);
    RANK_CHECK(convert_sync_batchnorm(net, group) == 2U);
    RANK_CHECK(net->ptr(1) != original);
    RANK_CHECK(net->named_children()["unknown"] == net->ptr(1));

    const Tensor all = numbers({4, 4, 2, 2}, 3);
    torch::nn::Sequential whole{torch::nn::BatchNorm2d(4), anonymous()};
    placed(whole)->to(torch::kDouble);
    const Tensor expected = whole->forward(all).narrow(0, 2 * group.rank(), 2);
    RANK_CHECK(torch::allclose(net->forward(all.narrow(0, 2 * group.rank(), 2)), expected, 1e-12, 1e-12));

    net->eval();
    RANK_CHECK(revert_sync_batchnorm(net) == 2U);
    RANK_CHECK(net->ptr(1) == original);
    RANK_CHECK_FALSE(original->is_training());
    RANK_CHECK(net->named_children()["unknown"] == original);
  });
}

TEST_CASE("Conversion: a wrapped model is refused with the right order") {
  Net net = make_net();
  {
    const WrappedParameters mark(net->parameters());  // as DistributedDataParallel sets it
    try {
      convert_sync_batchnorm(net, unconnected_rank(1, 2));
      FAIL("did not throw");
    } catch (const std::logic_error& error) {
      CHECK(std::regex_search(error.what(), std::regex("rank 1.*SyncBatchNorm.*amp.*DistributedDataParallel")));
    }
    CHECK_FALSE(intercepted());
  }
  CHECK(convert_sync_batchnorm(net, unconnected_rank(1, 2)) == 7U);
}

// LibTorch's own check, before anything of ours is called: documented, and ddp::SyncBatchNorm is the way out.
TEST_CASE("Conversion: one value per channel is still refused by LibTorch") {
  run_ranks(2, [](const GroupHandle& group) {
    auto norm = placed(torch::nn::BatchNorm1d(3));
    convert_sync_batchnorm(norm, group);
    try {
      norm(here(torch::ones({1, 3})));
      RANK_FAIL("did not throw");
    } catch (const std::exception& error) {
      RANK_CHECK_THAT(error.what(), ContainsSubstring("Expected more than 1 value per channel"));
    }
    auto synchronised = placed(SyncBatchNorm(3, group));
    synchronised(numbers({1, 3}, static_cast<uint64_t>(group.rank())).to(torch::kFloat));
  });
}

TEST_CASE("Conversion: errors name the layer") {
  std::string texts[2];
  run_ranks(2, [&](const GroupHandle& group) {
    torch::nn::Sequential net;
    net->push_back("stem", torch::nn::BatchNorm2d(group.rank() == 0 ? 4 : 6));
    placed(net);
    convert_sync_batchnorm(net, group);
    try {
      net->forward(here(torch::ones({2, group.rank() == 0 ? 4 : 6, 3, 3})));
    } catch (const std::exception& error) {
      texts[group.rank()] = error.what();
    }
  });
  for (const std::string& text : texts)
    CHECK_THAT(text, ContainsSubstring("SyncBatchNorm 'stem'") && ContainsSubstring("disagree") &&
                         ContainsSubstring("[2, 6, 3, 3]"));
}

TEST_CASE("Conversion: other threads keep their plain batch norms") {
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  const Tensor x = numbers({3, 4, 2, 2}, 1);
  std::thread other([&] {
    Net plain = make_net();
    const Tensor expected = [&] {
      Net reference = make_net();
      return reference(x);
    }();
    while (!stop) {
      plain->zero_grad();
      const Tensor y = plain(x);
      RANK_CHECK(torch::equal(y, expected));
      y.sum().backward();
      ++rounds;
    }
  });
  for (int i = 0; i < 200 || rounds < 20; ++i) {
    Net net = make_net();
    convert_sync_batchnorm(net, unconnected_rank(0, 2));
    CHECK_THROWS(net(x));
  }
  stop = true;
  other.join();
  CHECK_FALSE(intercepted());
}

}  // namespace
}  // namespace ddp
