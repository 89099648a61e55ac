#include "syncbn/conversion.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <atomic>
#include <sstream>
#include <thread>

#include "comm/collectives.h"
#include "comm/wrap_mark.h"
#include "syncbn/sync_batch_norm.h"
#include "tests/support/ranks.h"
#include "tests/syncbn/numbers.h"

namespace ddp {
namespace {

using test::numbers;
using test::run_ranks;
using test::unconnected_rank;
using testing::AllOf;
using testing::HasSubstr;
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
  return net;
}

// Names and identities of everything that a model owns.
std::vector<std::pair<std::string, const void*>> inventory(const torch::nn::Module& model) {
  std::vector<std::pair<std::string, const void*>> all;
  for (const auto& item : model.named_parameters()) all.emplace_back(item.key(), item.value().unsafeGetTensorImpl());
  for (const auto& item : model.named_buffers()) all.emplace_back(item.key(), item.value().unsafeGetTensorImpl());
  for (const auto& item : model.named_modules("", false)) all.emplace_back(item.key(), item.value().get());
  return all;
}

TEST(Conversion, a_typed_model_equals_one_process_with_the_whole_batch) {
  for (const auto wire : {test::Wire::kGloo, test::Wire::kLate}) {
    run_ranks(3,
              [](const GroupHandle& group) {
                Net whole = make_net();
                Net net = make_net();
                const auto before = inventory(*net);
                EXPECT_EQ(convert_sync_batchnorm(net, group), 7U);
                EXPECT_EQ(inventory(*net), before);
                EXPECT_TRUE(net->is_training());

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
                  EXPECT_TRUE(torch::allclose(actual, expected.narrow(0, start, own), 1e-10, 1e-11));
                  for (const auto& item : net->named_parameters()) {
                    Tensor sum = item.value().grad().clone();
                    all_reduce(sum, group);
                    EXPECT_TRUE(torch::allclose(sum, whole->named_parameters()[item.key()].grad(), 1e-9, 1e-10))
                        << item.key();
                  }
                }
                for (const auto& item : net->named_buffers()) {
                  const Tensor& buffer = item.value();
                  if (!buffer.defined()) continue;
                  EXPECT_TRUE(torch::allclose(buffer, whole->named_buffers()[item.key()], 1e-11, 1e-12)) << item.key();
                  const Tensor of_all = all_gather(buffer.contiguous(), group);
                  for (int rank = 1; rank < group.size(); ++rank) EXPECT_TRUE(torch::equal(of_all[rank], of_all[0]));
                }
              },
              {.wire = wire});
  }
}

TEST(Conversion, eval_mode_communicates_nothing_also_without_running_statistics) {
  Net net = make_net();
  Net plain = make_net();
  convert_sync_batchnorm(net, unconnected_rank(0, 2));
  const Tensor x = numbers({3, 4, 2, 2}, 1);
  EXPECT_ANY_THROW(net(x)) << "in training it communicates";
  net->eval();
  plain->eval();
  EXPECT_TRUE(torch::equal(net(x), plain(x)));
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::equal(net(x), plain(x)));
  const c10::InferenceMode inference;
  EXPECT_TRUE(torch::equal(net(x), plain(x)));
}

TEST(Conversion, frozen_layers_in_eval_stay_local_while_the_model_trains) {
  run_ranks(2, [](const GroupHandle& group) {
    torch::nn::Sequential net{torch::nn::BatchNorm1d(3), torch::nn::BatchNorm1d(3)};
    convert_sync_batchnorm(net, group);
    auto& frozen = *net->ptr(0)->as<torch::nn::BatchNorm1d>();
    frozen.eval();
    for (Tensor& parameter : frozen.parameters()) parameter.set_requires_grad(false);
    const Tensor x = numbers({4, 3}, static_cast<uint64_t>(group.rank())).to(torch::kFloat);
    const Tensor y = net->forward(x);
    y.sum().backward();
    EXPECT_TRUE(torch::equal(frozen.running_mean, torch::zeros({3})));
    EXPECT_FALSE(frozen.weight.grad().defined());
    Tensor mean = y.detach().mean(0);
    all_reduce(mean, group);
    EXPECT_LT(mean.abs().max().item<float>(), 1e-5) << "the other layer is synchronised";
  });
}

TEST(Conversion, ends_with_the_model) {
  EXPECT_FALSE(intercepted());
  Net one = make_net();
  {
    Net two = make_net();
    convert_sync_batchnorm(one, unconnected_rank(0, 2));
    convert_sync_batchnorm(two, unconnected_rank(0, 2));
    EXPECT_TRUE(intercepted());
  }
  EXPECT_TRUE(intercepted()) << "a converted model is left";
  one = nullptr;
  EXPECT_FALSE(intercepted());
}

TEST(Conversion, a_model_that_dies_before_its_tensors_is_forgotten) {
  Tensor kept;
  {
    Net net = make_net();
    convert_sync_batchnorm(net, unconnected_rank(0, 2));
    kept = net->norm2d->running_mean;
  }
  const Tensor x = numbers({3, 4, 2, 2}, 1);
  torch::batch_norm(x, {}, {}, kept, torch::ones({4}, torch::kDouble), true, 0.1, 1e-5, false);  // would throw
  kept = Tensor();
  EXPECT_FALSE(intercepted());
}

TEST(Conversion, new_models_at_old_addresses_are_not_converted) {
  const Tensor x = numbers({3, 4, 2, 2}, 1);
  for (int i = 0; i < 50; ++i) {
    {
      Net net = make_net();
      convert_sync_batchnorm(net, unconnected_rank(0, 2));
    }
    Net fresh = make_net();
    fresh(x);  // would throw
  }
}

TEST(Conversion, can_be_reverted) {
  Net net = make_net();
  Net plain = make_net();
  EXPECT_EQ(revert_sync_batchnorm(net), 0U);
  const auto before = inventory(*net);
  convert_sync_batchnorm(net, unconnected_rank(0, 2));
  EXPECT_EQ(revert_sync_batchnorm(net), 7U);
  EXPECT_EQ(inventory(*net), before);
  EXPECT_FALSE(intercepted());
  const Tensor x = numbers({3, 4, 2, 2}, 1);
  EXPECT_TRUE(torch::equal(net(x), plain(x)));
  EXPECT_EQ(revert_sync_batchnorm(net), 0U);
}

TEST(Conversion, converting_again_replaces_the_group) {
  Net net = make_net();
  convert_sync_batchnorm(net, unconnected_rank(0, 2));
  convert_sync_batchnorm(net, unconnected_rank(0, 2));
  run_ranks(1, [&](const GroupHandle& group) {
    EXPECT_EQ(convert_sync_batchnorm(net, group), 7U);
    net(numbers({3, 4, 2, 2}, 1));  // a group of one: plain batch norm
  });
  EXPECT_EQ(revert_sync_batchnorm(net), 7U);
}

TEST(Conversion, survives_moves_loading_and_cleared_gradients) {
  Net net = make_net();
  convert_sync_batchnorm(net, unconnected_rank(0, 2));
  const Tensor x = numbers({3, 4, 2, 2}, 1);
  const auto expect_converted = [&](const Tensor& input) { EXPECT_ANY_THROW(net(input)); };
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

TEST(Conversion, a_clone_and_a_loaded_model_are_plain_until_they_are_converted) {
  Net net = make_net();
  convert_sync_batchnorm(net, unconnected_rank(0, 2));
  const Tensor x = numbers({3, 4, 2, 2}, 1);
  torch::nn::BatchNorm2d norm(4);
  norm->to(torch::kDouble);
  convert_sync_batchnorm(norm, unconnected_rank(0, 2));
  EXPECT_ANY_THROW(norm(x));
  auto copy = std::dynamic_pointer_cast<torch::nn::BatchNorm2dImpl>(norm->clone());
  ASSERT_TRUE(copy);
  copy->forward(x);
  EXPECT_EQ(convert_sync_batchnorm(copy, unconnected_rank(0, 2)), 1U);
  EXPECT_ANY_THROW(copy->forward(x));

  std::stringstream stream;
  torch::save(net, stream);
  Net loaded = make_net();
  torch::load(loaded, stream);
  loaded(x);
}

TEST(Conversion, a_replaced_tensor_is_noticed_by_another_layer) {
  run_ranks(2, [](const GroupHandle& group) {
    torch::nn::Sequential net{torch::nn::BatchNorm1d(3), torch::nn::BatchNorm1d(3)};
    convert_sync_batchnorm(net, group);
    auto& second = *net->ptr(1)->as<torch::nn::BatchNorm1d>();
    second.running_mean = torch::zeros({3});
    try {
      net->forward(torch::ones({4, 3}));
      FAIL() << "did not throw";
    } catch (const std::logic_error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("SyncBatchNorm '1'"), HasSubstr("replaced by another tensor")));
    }
    convert_sync_batchnorm(net, group);
    net->forward(numbers({4, 3}, 1).to(torch::kFloat));
  });
}

TEST(Conversion, every_kind_of_reference_to_a_model_is_taken) {
  const auto group = unconnected_rank(0, 2);
  auto pointer = std::make_shared<NetImpl>();
  EXPECT_EQ(convert_sync_batchnorm(pointer, group), 7U);
  EXPECT_EQ(convert_sync_batchnorm(*pointer, group), 7U);
  torch::nn::BatchNorm2d alone(3);
  EXPECT_EQ(convert_sync_batchnorm(alone, group), 1U);
  NetImpl on_the_stack;
  EXPECT_EQ(convert_sync_batchnorm(on_the_stack, group), 7U);
  torch::nn::Linear without(3, 3);
  EXPECT_EQ(convert_sync_batchnorm(without, group), 0U);
  EXPECT_EQ(convert_syncbn_model(pointer, group), 7U);
  EXPECT_EQ(convert_syncbn_model(alone, group), 1U);
  EXPECT_EQ(revert_sync_batchnorm(*pointer), 7U);
}

TEST(Conversion, a_layer_that_two_members_share_counts_once) {
  torch::nn::BatchNorm1d shared(3);
  const torch::nn::Sequential net{shared, shared};
  EXPECT_EQ(convert_sync_batchnorm(net, unconnected_rank(0, 2)), 1U);
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

TEST(Conversion, a_typed_layer_without_any_tensor_is_refused_by_name_and_nothing_is_converted) {
  const auto net = std::make_shared<AnonymousImpl>();
  try {
    convert_sync_batchnorm(net, unconnected_rank(1, 2));
    FAIL() << "did not throw";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1"), HasSubstr("'unknown'"), HasSubstr("Nothing was converted")));
  }
  EXPECT_FALSE(intercepted());
  EXPECT_EQ(revert_sync_batchnorm(net), 0U);
}

TEST(Conversion, a_layer_without_any_tensor_is_replaced_where_a_sequential_calls_it) {
  run_ranks(2, [](const GroupHandle& group) {
    torch::nn::Sequential net;
    net->push_back("first", torch::nn::BatchNorm2d(4));
    net->push_back("unknown", anonymous());
    net->to(torch::kDouble);
    const auto original = net->ptr(1);
    EXPECT_EQ(convert_sync_batchnorm(net, group), 2U);
    EXPECT_NE(net->ptr(1), original);
    EXPECT_EQ(net->named_children()["unknown"], net->ptr(1));

    const Tensor all = numbers({4, 4, 2, 2}, 3);
    torch::nn::Sequential whole{torch::nn::BatchNorm2d(4), anonymous()};
    whole->to(torch::kDouble);
    const Tensor expected = whole->forward(all).narrow(0, 2 * group.rank(), 2);
    EXPECT_TRUE(torch::allclose(net->forward(all.narrow(0, 2 * group.rank(), 2)), expected, 1e-12, 1e-12));

    net->eval();
    EXPECT_EQ(revert_sync_batchnorm(net), 2U);
    EXPECT_EQ(net->ptr(1), original);
    EXPECT_FALSE(original->is_training());
    EXPECT_EQ(net->named_children()["unknown"], original);
  });
}

TEST(Conversion, a_wrapped_model_is_refused_with_the_right_order) {
  Net net = make_net();
  {
    const WrapMark mark(net->parameters());  // as DistributedDataParallel sets it
    try {
      convert_sync_batchnorm(net, unconnected_rank(1, 2));
      FAIL() << "did not throw";
    } catch (const std::logic_error& error) {
      EXPECT_THAT(error.what(), testing::ContainsRegex("rank 1.*SyncBatchNorm.*amp.*DistributedDataParallel"));
    }
    EXPECT_FALSE(intercepted());
  }
  EXPECT_EQ(convert_sync_batchnorm(net, unconnected_rank(1, 2)), 7U);
}

// LibTorch's own check, before anything of ours is called: documented, and ddp::SyncBatchNorm is the way out.
TEST(Conversion, one_value_per_channel_is_still_refused_by_libtorch) {
  run_ranks(2, [](const GroupHandle& group) {
    torch::nn::BatchNorm1d norm(3);
    convert_sync_batchnorm(norm, group);
    try {
      norm(torch::ones({1, 3}));
      FAIL() << "did not throw";
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("Expected more than 1 value per channel"));
    }
    SyncBatchNorm synchronised(3, group);
    synchronised(numbers({1, 3}, static_cast<uint64_t>(group.rank())).to(torch::kFloat));
  });
}

TEST(Conversion, errors_name_the_layer) {
  std::string texts[2];
  run_ranks(2, [&](const GroupHandle& group) {
    torch::nn::Sequential net;
    net->push_back("stem", torch::nn::BatchNorm2d(group.rank() == 0 ? 4 : 6));
    convert_sync_batchnorm(net, group);
    try {
      net->forward(torch::ones({2, group.rank() == 0 ? 4 : 6, 3, 3}));
    } catch (const std::exception& error) {
      texts[group.rank()] = error.what();
    }
  });
  for (const std::string& text : texts)
    EXPECT_THAT(text, AllOf(HasSubstr("SyncBatchNorm 'stem'"), HasSubstr("disagree"), HasSubstr("[2, 6, 3, 3]")));
}

TEST(Conversion, other_threads_keep_their_plain_batch_norms) {
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
      EXPECT_TRUE(torch::equal(y, expected));
      y.sum().backward();
      ++rounds;
    }
  });
  for (int i = 0; i < 200 || rounds < 20; ++i) {
    Net net = make_net();
    convert_sync_batchnorm(net, unconnected_rank(0, 2));
    EXPECT_ANY_THROW(net(x));
  }
  stop = true;
  other.join();
  EXPECT_FALSE(intercepted());
}

}  // namespace
}  // namespace ddp
