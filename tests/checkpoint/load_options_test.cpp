// What of a file is loaded, under which names and dtypes, and models that come in several files.
#include <torch/optim/sgd.h>

#include <string>

#include <ddprun/checkpoint/checkpoint.h>
#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/checkpoint/options.h>
#include <ddprun/checkpoint/safetensors.h>
#include <ddprun/checkpoint/tensor_files.h>

#include "checkpoint/core/sharded_index.h"
#include "checkpoint/optimizer_state.h"
#include "tests/checkpoint/nets.h"
#include "tests/checkpoint/single_process.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using test::copy_of;
using test::ElementsAre;
using test::equal;
using test::error_of;
using test::Net;
using test::single_process;
using test::TemporaryFolder;
using test::train;
using test::write_file;

TensorMap renamed(const TensorMap& tensors, const std::string& prefix) {
  TensorMap result;
  for (const auto& [name, tensor] : tensors) result.emplace(prefix + name, tensor);
  return result;
}

TensorMap as(const TensorMap& tensors, at::ScalarType dtype) {
  TensorMap result;
  for (const auto& [name, tensor] : tensors) {
    result.emplace(name, tensor.is_floating_point() ? tensor.to(dtype) : tensor);
  }
  return result;
}

TEST_CASE("LoadOptions: cast converts floating-point weights and nothing else") {
  const TemporaryFolder folder;
  Net source, target;
  save_safetensors(folder / "half", as(copy_of(*source), at::kHalf));
  const auto before = copy_of(*target);
  CHECK_THROWS_WITH(load_weights(folder / "half", target),
                    ContainsSubstring("'fc1.weight' is Float [8, 4] in the model, but Half [8, 4] in the file"));
  CHECK(equal(copy_of(*target), before));
  load_weights(folder / "half", target, {.cast = true});
  CHECK(equal(copy_of(*target), as(as(copy_of(*source), at::kHalf), at::kFloat)));

  auto whole = copy_of(*source);
  whole["fc1.weight"] = whole["fc1.weight"].to(at::kInt);
  save_safetensors(folder / "int", whole);
  CHECK_THROWS_WITH(load_weights(folder / "int", target, {.cast = true}), ContainsSubstring("but Int"));
}

TEST_CASE("LoadOptions: cast serves the optimizer's state too") {
  const TemporaryFolder folder;
  Net source, target;
  source->to(at::kDouble);
  torch::optim::SGD optimizer(source->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (const auto& parameter : source->parameters()) parameter.mutable_grad() = torch::ones_like(parameter) / 3;
  optimizer.step();
  save_checkpoint(folder / "double", {.model = source, .optimizer = optimizer}, single_process());
  torch::optim::SGD other(target->parameters(), torch::optim::SGDOptions(0.5));
  load_checkpoint(folder / "double", {.model = target, .optimizer = other}, single_process(), {.cast = true});
  TensorMap state;
  const auto model = module_state(*target);
  save_optimizer_state(other, model, state);
  CHECK(state.at("state.fc1.weight.momentum_buffer").equal(torch::full({8, 4}, 1.0F / 3)));
}

TEST_CASE("LoadOptions: rename takes beginnings or any function") {
  const TemporaryFolder folder;
  Net source;
  const auto plain = copy_of(*source);
  save_safetensors(folder / "file", renamed(plain, "model."));
  const auto loads = [&](const LoadOptions& options) {
    Net target;
    load_weights(folder / "file", target, options);
    return equal(copy_of(*target), plain);
  };
  CHECK(loads({.rename = {{"model.", ""}}}));
  CHECK(loads({.rename = {{"model.", "net."}, {"net.", ""}, {"absent.", "x."}}}));
  CHECK(loads({.rename = [](const std::string& name) { return name.substr(6); }}));
  CHECK_THROWS_WITH(loads({}), ContainsSubstring("unexpected 'model.bn.bias'"));
  CHECK_THROWS_WITH(loads({.rename = [](const std::string&) { return std::string("one"); }}),
                    ContainsSubstring("the given renaming maps two names to 'one'"));
  const auto without_fc2 = [](const std::string& name) { return name.find("fc2") == 6 ? "" : name.substr(6); };
  Net target;
  const auto loaded = load_weights(folder / "file", target, {.strict = false, .rename = without_fc2});
  CHECK_THAT(loaded.missing, ElementsAre("fc2.bias", "fc2.weight"));
}

TEST_CASE("LoadOptions: wrappers and compiled modules need no renaming") {
  const TemporaryFolder folder;
  Net source;
  const auto plain = copy_of(*source);
  for (const char* prefix : {"_orig_mod.", "module._orig_mod.", "_orig_mod.module.", "module.module._orig_mod."}) {
    save_safetensors(folder / "file", renamed(plain, prefix));
    Net target;
    load_weights(folder / "file", target);
    INFO(prefix);
    CHECK(equal(copy_of(*target), plain));
  }
}

TEST_CASE("LoadOptions: renamed parameters find their optimizer state") {
  const TemporaryFolder folder;
  Net source, target;
  torch::optim::SGD optimizer(source->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  train(source, optimizer, 0, 2);
  save_checkpoint(folder / "file", {.model = source, .optimizer = optimizer}, single_process());
  const SafetensorsFile file(folder / "file");
  auto metadata = file.header().metadata;
  auto& groups = metadata.at("ddprun.optimizer");
  TensorMap tensors;
  for (const auto& [name, tensor] : load_safetensors(folder / "file")) {
    tensors.emplace(name.starts_with("state.") ? "state.model." + name.substr(6) : "model." + name, tensor);
  }
  for (const char* name : {"\"bn.", "\"fc1.", "\"fc2."}) {
    for (size_t at = 0; (at = groups.find(name, at)) != std::string::npos; at += 7) groups.insert(at + 1, "model.");
  }
  save_safetensors(folder / "renamed", tensors, metadata);
  torch::optim::SGD other(target->parameters(), torch::optim::SGDOptions(0.5));
  const CheckpointState into{.model = target, .optimizer = other};
  CHECK_THROWS_WITH(load_checkpoint(folder / "renamed", into, single_process()), ContainsSubstring("missing"));
  load_checkpoint(folder / "renamed", into, single_process(), {.rename = {{"model.", ""}}});
  for (auto* run : {&optimizer, &other}) train(run == &optimizer ? source : target, *run, 2, 2);
  CHECK(equal(copy_of(*target), copy_of(*source)));
}

TEST_CASE("LoadOptions: key selects an entry") {
  const TemporaryFolder folder;
  Net raw, ema;
  auto both = renamed(copy_of(*raw), "model.");
  both.merge(renamed(copy_of(*ema), "ema."));
  save_safetensors(folder / "file", both);
  save_pt(folder / "file.pt", both);
  Net target;
  load_weights(folder / "file", target, {.key = "ema"});
  CHECK(equal(copy_of(*target), copy_of(*ema)));
  CHECK_THROWS_WITH(load_weights(folder / "file", target, {.key = "em"}),
                    ContainsSubstring("holds nothing under the key 'em'"));
  CHECK_THROWS_WITH(load_weights(folder / "file.pt", target, {.key = "ema"}),
                    ContainsSubstring("it has no entry 'ema'"));
}

TEST_CASE("LoadOptions: the error of missing weights says under which keys the file has them") {
  const TemporaryFolder folder;
  Net raw, ema;
  auto both = renamed(copy_of(*raw), "params.");
  both.merge(renamed(copy_of(*ema), "params_ema."));
  save_safetensors(folder / "file", both);
  save_pt(folder / "file.pt", both);
  for (const auto* name : {"file", "file.pt"}) {
    CHECK_THROWS_WITH(
        load_weights(folder / name, ema),
        ContainsSubstring("missing 'bn.bias'") &&
            ContainsSubstring("the file has tensors under the keys 'params', 'params_ema': choose one with "
                              "LoadOptions::key, as in {.key = \"params\"}"));
  }
  both = renamed(copy_of(*raw), "params.");
  both.erase("params.fc2.bias");
  save_safetensors(folder / "part", both);
  UNSCOPED_INFO("no key would do");
  CHECK_THAT(error_of([&] { load_weights(folder / "part", ema); }), !ContainsSubstring("LoadOptions::key"));
}

TEST_CASE("LoadOptions: a file that is something else is named") {
  const TemporaryFolder folder;
  Net target;
  const auto message = [&](const std::string& name, const std::string& content) {
    write_file(folder / name, content);
    return error_of([&] { load_weights(folder / name, target); });
  };
  CHECK_THAT(message("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
             ContainsSubstring("model.safetensors is not a valid safetensors file: it is a Git LFS pointer"));
  CHECK_THAT(message("pointer.pt", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
             ContainsSubstring("pointer.pt cannot be read as a .pt or safetensors file: it is a Git LFS pointer"));
  CHECK_THAT(message("model.pt", "<!DOCTYPE html><html></html>"), ContainsSubstring("it is an HTML page"));
  CHECK_THAT(message("empty.pt", ""), ContainsSubstring("it is empty"));
  CHECK_THAT(message("__0_0.distcp", "PK\3\4"), ContainsSubstring("dcp_to_torch_save"));
  write_file(folder / "dcp", "");
  std::filesystem::remove(folder / "dcp");
  std::filesystem::create_directory(folder / "dcp");
  write_file(folder / "dcp/.metadata", "\x80\2");
  CHECK_THROWS_WITH(load_weights(folder / "dcp", target), ContainsSubstring("its .metadata: the pickle is refused"));
  CheckpointManager manager(folder / "run", single_process());
  CHECK_THROWS_WITH(manager.load(folder / "dcp", {.model = target}),
                    ContainsSubstring("its .metadata: the pickle is refused"));
  CHECK_THROWS_WITH(manager.load(folder / "__0_0.distcp", {.model = target}), ContainsSubstring("dcp_to_torch_save"));
  CHECK_THROWS_WITH(manager.load(folder / "model.safetensors", {.model = target}),
                    ContainsSubstring("it is a Git LFS pointer"));
  CHECK_THROWS_WITH(CheckpointManager(folder / "dcp", single_process()).load_latest({.model = target}),
                    ContainsSubstring("dcp_to_torch_save"));
}

TEST_CASE("CheckpointManager: what cannot be loaded is named, also when it is the folder of a run") {
  const TemporaryFolder folder;
  const auto group = init_process_group({.rank_info = RankInfo{}});
  Net net;
  CheckpointManager saving(folder / "run", group), loading(folder / "other", group);
  saving.save(4, {.model = net});
  const auto message = [&](const std::filesystem::path& path) {
    return error_of([&] { loading.load(path, {.model = net}); });
  };
  const std::string run = (folder / "run").string();
  CHECK(message(folder / "run") == "cannot load from " + run +
                                       ": this is the folder of a run, not a checkpoint; its newest checkpoint is " +
                                       run + "/step-00000004");
  CHECK_THAT(message(folder / "nothing"), StartsWith("cannot load from " + (folder / "nothing").string() + ": "));
}

TEST_CASE("LoadOptions: the manager's loads take them all") {
  const TemporaryFolder folder;
  Net source;
  CheckpointManager manager(folder / "run", single_process());
  source->to(at::kHalf);
  manager.save(1, {.model = source});
  Net target;
  manager.load(1, {.model = target}, {.cast = true});
  CHECK(equal(copy_of(*target), as(copy_of(*source), at::kFloat)));
  CHECK_THROWS_WITH(manager.load(1, {.model = target}, {.cast = true, .key = "ema"}),
                    ContainsSubstring("holds nothing under the key 'ema'"));
}

class ShardedModel {
 protected:
  void save(const std::string& second = "model-00002-of-00002.safetensors") {
    TensorMap first, rest;
    std::string map;
    for (const auto& [name, tensor] : copy_of(*source)) {
      const bool is_first = name < "fc";
      (is_first ? first : rest).emplace(name, tensor);
      map += (map.empty() ? "\"" : ", \"") + name + "\": \"" +
             (is_first ? "model-00001-of-00002.safetensors" : second) + "\"";
    }
    save_safetensors(folder / "model-00001-of-00002.safetensors", first, {{"format", "pt"}});
    save_safetensors(folder / "model-00002-of-00002.safetensors", rest, {{"format", "pt"}});
    write_file(index(), R"({"metadata": {"total_size": 1}, "weight_map": {)" + map + "}}");
  }
  std::filesystem::path index() const { return folder / "model.safetensors.index.json"; }

  TemporaryFolder folder;
  Net source, target;
};

TEST_CASE_METHOD(ShardedModel, "ShardedModel: is loaded by its index or its folder") {
  save();
  load_weights(index(), target);
  CHECK(equal(copy_of(*target), copy_of(*source)));
  Net other;
  load_weights(index().parent_path(), other);
  CHECK(equal(copy_of(*other), copy_of(*source)));
}

TEST_CASE_METHOD(ShardedModel, "ShardedModel: an index cannot reach out of its folder") {
  for (const char* name : {"../secret.safetensors", "/etc/passwd", "a/../../b.safetensors", "..", ".", "a/", ""}) {
    save(name);
    INFO(name);
    CHECK_THROWS_WITH(load_weights(index(), target), ContainsSubstring("not a file name inside the index's folder"));
  }
}

TEST_CASE_METHOD(ShardedModel, "ShardedModel: neither an index nor a folder is taken for a file of it") {
  save("model.safetensors.index.json");
  CHECK_THROWS_WITH(load_weights(index(), target), ContainsSubstring("which is an index itself"));
  save("again");
  std::filesystem::create_directory_symlink(".", folder / "again");
  CHECK_THROWS_WITH(load_weights(index(), target),
                    ContainsSubstring("again") && ContainsSubstring("expected a regular file"));
  save("copy");
  std::filesystem::copy_file(index(), folder / "copy");
  CHECK_THROWS_WITH(load_weights(index(), target), ContainsSubstring("it is the index of a model in several files"));
}

TEST_CASE_METHOD(ShardedModel, "ShardedModel: what is missing is named") {
  save("absent.safetensors");
  CHECK_THROWS_WITH(load_weights(index(), target), ContainsSubstring("absent.safetensors"));
  save("model-00001-of-00002.safetensors");
  CHECK_THROWS_WITH(load_weights(index(), target), ContainsSubstring("lacks the tensor 'fc1.bias'"));
  for (const char* text :
       {"", "[]", "{}", R"({"weight_map": []})", R"({"weight_map": {}})", R"({"weight_map": {"a": 1}})"}) {
    write_file(index(), text);
    INFO(text);
    CHECK_THROWS_WITH(load_weights(index(), target), ContainsSubstring("not an index of a model's files"));
  }
  std::filesystem::remove(index());
  std::filesystem::remove(index().parent_path() / "model-00001-of-00002.safetensors");
  CHECK_THROWS_WITH(load_weights(index().parent_path(), target),
                    ContainsSubstring("model-00001-of-00002.safetensors") && ContainsSubstring("missing"));
}

struct Text {
  std::string text = "as it was";
  std::string save() const { return text; }
  void load(const std::string& other) { text = other; }
};
struct OptionalText : Text {
  static constexpr bool kMayBeMissing = true;
};

TEST_CASE("LoadOptions: a part whose class says so may be missing, and is named; others are refused") {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run", single_process());
  Net net;
  manager.save(1, {.model = net});
  OptionalText shared, of_rank;
  Text needed;
  const LoadedCheckpoint loaded =
      manager.load(1, {.model = net, .shared = {{"a", shared}}, .per_rank = {{"b", of_rank}}});
  CHECK_THAT(loaded.missing, ElementsAre("shared-a.state", "rank.0.object.b"));
  CHECK(shared.text == "as it was");
  CHECK(of_rank.text == "as it was");
  CHECK_THROWS_WITH(manager.load(1, {.model = net, .shared = {{"a", needed}}}), ContainsSubstring("holds no shared-a"));
  CHECK_THROWS_WITH(manager.load(1, {.model = net, .per_rank = {{"b", needed}}}), ContainsSubstring("rank.0.object.b"));

  shared.text = of_rank.text = "saved";
  manager.save(2, {.model = net, .shared = {{"a", shared}}, .per_rank = {{"b", of_rank}}});
  shared.text = of_rank.text = "else";
  const auto again = manager.load(2, {.model = net, .shared = {{"a", shared}}, .per_rank = {{"b", of_rank}}});
  CHECK(again.missing.empty());
  CHECK(shared.text == "saved");
  CHECK(of_rank.text == "saved");
}

}  // namespace
}  // namespace ddp
