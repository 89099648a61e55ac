// A model's weights beside items of a .pt file that C++ does not take: they are named, not fatal, until asked for.
#include <ATen/ops/full.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <string>

#include <ddprun/checkpoint/checkpoint.h>
#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/checkpoint/tensor_files.h>

#include "checkpoint/pt/zip_writer.h"
#include "tests/checkpoint/sparse_file.h"
#include "tests/support/captured_output.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using namespace std::string_literals;
using Catch::Matchers::ContainsSubstring;
using test::error_of;

const auto kMeta = "ctorch._utils\n_rebuild_meta_tensor_no_storage\n)R"s;

// Two floats from element `offset` on.
std::string tensor(char offset) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"s +
         "0X\3\0\0\0cpuK\4tQK"s + offset + "K\1K\2\x86K\2K\1\x86\x89}tR";
}

std::string key(const std::string& name) {
  return "X"s + static_cast<char>(name.size()) + "\0\0\0"s + name;
}

void write_pt_file(const std::filesystem::path& path, const std::string& content) {
  test::SparseFile file(path);
  pt::ZipWriter zip(file);
  zip.add("archive/data.pkl", "\x80\2}(" + content + "u.");
  const float values[] = {1, 2, 3, 4};
  zip.add("archive/data/0", {reinterpret_cast<const char*>(values), sizeof(values)});
  zip.finish();
}

torch::nn::Linear make_net() {
  return torch::nn::Linear(torch::nn::LinearOptions(2, 1).bias(false));
}

TEST_CASE("OddItems: what the model does not ask for is named and passed over") {
  const test::TemporaryFolder folder;
  write_pt_file(folder / "run.pt", key("weight") + tensor(2) + key("mask") + kMeta);
  auto net = make_net();
  const test::CapturedStderr said;
  load_weights(folder / "run.pt", net);
  CHECK_THAT(said.text(),
             ContainsSubstring("run.pt: not read: 'mask' (a tensor of the meta device") && ContainsSubstring("run.pt"));
  CHECK(net->weight.sum().item<float>() == 7);
}

TEST_CASE("OddItems: what the model asks for is an error that says what it is") {
  const test::TemporaryFolder folder;
  write_pt_file(folder / "run.pt", key("other") + tensor(0) + key("weight") + kMeta);
  auto net = make_net();
  CHECK_THROWS_WITH(load_weights(folder / "run.pt", net),
                    ContainsSubstring("missing 'weight' (a tensor of the meta device") &&
                        ContainsSubstring("does not fit the model"));
}

std::string optimizer(const std::string& params, const std::string& state) {
  return key("optimizer") + "}(" + key("state") + state + key("param_groups") + "]}(" + key("params") + params + "uau";
}

TEST_CASE("OddItems: an odd optimizer keeps nobody from the weights") {
  const test::TemporaryFolder folder;
  write_pt_file(folder / "run.pt", key("model") + "}" + key("weight") + tensor(0) + "s" + optimizer("]Na", "}"));
  auto net = make_net();
  load_weights(folder / "run.pt", net);
  CHECK(net->weight.sum().item<float>() == 3);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  auto group = init_process_group({.rank_info = RankInfo{}});
  CHECK_THROWS_WITH(load_checkpoint(folder / "run.pt", {.model = net, .optimizer = sgd}, group),
                    ContainsSubstring("'optimizer' (an optimizer's state in a form that is not known)"));
}

TEST_CASE("OddItems: an optimizer's odd tensor is an error for the optimizer alone") {
  const test::TemporaryFolder folder;
  const auto state = "}K\0}"s + key("momentum_buffer") + kMeta + "ss";
  write_pt_file(folder / "run.pt", key("model") + "}" + key("weight") + tensor(0) + "s" + optimizer("]K\0a"s, state));
  auto net = make_net();
  load_weights(folder / "run.pt", net);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  auto group = init_process_group({.rank_info = RankInfo{}});
  CHECK_THROWS_WITH(load_checkpoint(folder / "run.pt", {.model = net, .optimizer = sgd}, group),
                    ContainsSubstring("momentum_buffer' cannot be read: it is a tensor of the meta device"));
}

// What `numpy.float64(0.5)` and `argparse.Namespace()` are in a pickle, or near enough.
const auto kNumber = "cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nX\2\0\0\0f8\x85RU\x08\0\0\0\0\0\0\xe0?\x86R"s;
const auto kNamespace = "cargparse\nNamespace\n)\x81}" + key("lr") + "K\1sb";

TEST_CASE("OddItems: objects of other classes are passed over and named, also by the manager") {
  const test::TemporaryFolder folder;
  write_pt_file(folder / "run.pt", key("state_dict") + "}" + key("weight") + tensor(2) + "s" + key("args") +
                                       kNamespace + key("best") + kNumber + key("epoch") + "K\3");
  auto net = make_net();
  std::string said;
  {
    const test::CapturedStderr captured;
    load_weights(folder / "run.pt", net);
    said = captured.text();
  }
  CHECK_THAT(said, ContainsSubstring("not read: 'args' (an object of 'argparse.Namespace'") &&
                       ContainsSubstring("'best' (an object of 'numpy.core.multiarray.scalar'"));
  CHECK(net->weight.sum().item<float>() == 7);
  auto group = init_process_group({.rank_info = RankInfo{}});
  std::string notices;
  CheckpointManager manager(folder / "run", group,
                            {.notify = [&](const std::string& text) { notices += text + "\n"; }});
  CHECK(manager.load(folder / "run.pt", {.model = net}).step == 3);
  CHECK_THAT(notices, ContainsSubstring("run.pt: not read: 'args' (an object of 'argparse.Namespace'"));
}

TEST_CASE("OddItems: a step that is not a plain number is refused, as it would be taken for 0") {
  const test::TemporaryFolder folder;
  write_pt_file(folder / "run.pt", key("model") + "}" + key("weight") + tensor(2) + "s" + key("epoch") + kNumber);
  auto net = make_net();
  auto group = init_process_group({.rank_info = RankInfo{}});
  CheckpointManager manager(folder / "run", group);
  CHECK_THROWS_WITH(
      manager.load(folder / "run.pt", {.model = net}),
      ContainsSubstring("its 'epoch', which says how far the run is, is an object, which is not supported"));
  load_weights(folder / "run.pt", net);
  CHECK(net->weight.sum().item<float>() == 7);
}

TEST_CASE("OddItems: an optimizer's number that is not Python's own does not count as absent") {
  const test::TemporaryFolder folder;
  const auto groups = "]}(" + key("lr") + kNumber + key("momentum") + "K\0"s + key("dampening") + "K\0"s +
                      key("weight_decay") + "K\0"s + key("nesterov") + "\x89" + key("params") + "]K\0aua"s;
  write_pt_file(folder / "run.pt", key("model") + "}" + key("weight") + tensor(0) + "s" + key("optimizer") + "}(" +
                                       key("state") + "}" + key("param_groups") + groups + "u");
  auto net = make_net();
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  auto group = init_process_group({.rank_info = RankInfo{}});
  CHECK_THROWS_WITH(load_checkpoint(folder / "run.pt", {.model = net, .optimizer = sgd}, group),
                    ContainsSubstring("holds no value that SGD can use as its hyper-parameter lr"));
}

TEST_CASE("OddItems: weights under keys that are not usual are named, beside an optimizer too") {
  const test::TemporaryFolder folder;
  write_pt_file(folder / "run.pt",
                key("params_ema") + "}" + key("weight") + tensor(2) + "s" + optimizer("]K\0a"s, "}"));
  auto net = make_net();
  const auto hint = ContainsSubstring(
      "the file has tensors under the keys 'params_ema': choose one with "
      "LoadOptions::key, as in {.key = \"params_ema\"}");
  CHECK_THROWS_WITH(load_weights(folder / "run.pt", net), hint);
  auto group = init_process_group({.rank_info = RankInfo{}});
  CheckpointManager manager(folder / "run", group);
  CHECK_THROWS_WITH(manager.load(folder / "run.pt", {.model = net}), hint);
  load_weights(folder / "run.pt", net, {.key = "params_ema"});
  CHECK(net->weight.sum().item<float>() == 7);
}

TEST_CASE("OddItems: Lightning's lists of one are the optimizer and the schedule") {
  const test::TemporaryFolder folder;
  const auto groups = "]}(" + key("lr") + "G\x3f\xe0\0\0\0\0\0\0"s + key("momentum") + "K\0"s + key("dampening") +
                      "K\0"s + key("weight_decay") + "K\0"s + key("nesterov") + "\x89" + key("params") + "]K\0aua"s;
  write_pt_file(folder / "run.ckpt", key("state_dict") + "}" + key("weight") + tensor(0) + "s" +
                                         key("optimizer_states") + "]}(" + key("state") + "}" + key("param_groups") +
                                         groups + "ua" + key("lr_schedulers") + "]}" + key("last_epoch") + "K\7sa"s +
                                         key("global_step") + "K\x14");
  auto net = make_net();
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  struct Text {
    std::string text;
    std::string save() const { return text; }
    void load(const std::string& other) { text = other; }
  } schedule;
  auto group = init_process_group({.rank_info = RankInfo{}});
  CheckpointManager manager(folder / "run", group);
  const auto loaded =
      manager.load(folder / "run.ckpt", {.model = net, .optimizer = sgd, .schedule = schedule, .rng = false});
  CHECK(loaded.step == 20);
  CHECK(static_cast<torch::optim::SGDOptions&>(sgd.param_groups()[0].options()).lr() == 0.5);
  CHECK_THAT(schedule.text, ContainsSubstring("\"last_epoch\":7"));
  torch::optim::SGD other(net->parameters(), torch::optim::SGDOptions(0.1));
  load_checkpoint(folder / "run.ckpt", {.model = net, .optimizer = other}, group);
  CHECK(static_cast<torch::optim::SGDOptions&>(other.param_groups()[0].options()).lr() == 0.5);
}

}  // namespace
}  // namespace ddp
