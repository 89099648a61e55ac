#include "checkpoint/dcp/dcp_folder.h"

#include <nlohmann/json.hpp>

#include <fstream>
#include <stdexcept>

#include "checkpoint/dcp/dcp_writer.h"
#include "checkpoint/dcp/metadata.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/tensor_item.h"
#include "tests/checkpoint/dcp_pickles.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace ddp;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using nlohmann::json;

// A tensor of bytes that count up, as one chunk or as rows of ranks.
class Folder {
 public:
  void tensor(dcp::Path path, std::vector<int64_t> shape, int ranks = 1, const std::string& dtype = "float32") {
    auto& [description, places] = contents_.tensors.emplace_back();
    description = {.path = std::move(path), .dtype = dtype, .shape = shape};
    for (int rank = 0; rank < ranks; ++rank) {
      auto box = shards::whole(shape);
      if (ranks > 1) {
        const auto step = (shape[0] + ranks - 1) / ranks;
        box.offsets[0] = std::min(shape[0], rank * step);
        box.sizes[0] = std::min(shape[0], (rank + 1) * step) - box.offsets[0];
      }
      places.push_back({.rank = rank, .box = box});
    }
  }

  void value(dcp::Path path, const json& value) { contents_.values.emplace_back(std::move(path), value.dump()); }

  std::filesystem::path write() {
    const auto path = folder_ / ("run" + std::to_string(count_++));
    file_system.make_folder(path);
    dcp::write_dcp_folder(file_system, path, contents_, [&](size_t i, size_t j, storage::ByteSink& sink) {
      const auto bytes = static_cast<size_t>(shards::numel(contents_.tensors[i].second[j].box)) *
                         pt::dtype_by_name(contents_.tensors[i].first.dtype)->bytes;
      std::string elements(bytes, '\0');
      for (size_t k = 0; k < bytes; ++k) elements[k] = static_cast<char>(k);
      sink.write(elements.data(), elements.size() / 2);
      sink.write(elements.data() + elements.size() / 2, elements.size() - elements.size() / 2);
    });
    return path;
  }

  shards::ShardedRun read() { return dcp::read_dcp_folder(file_system, write()); }

  storage::FileSystem file_system;

 private:
  test::TemporaryFolder folder_;
  dcp::DcpContents contents_;
  int count_ = 0;
};

json groups_in(const shards::ShardedRun& run, const std::string& part = "optim.safetensors") {
  return json::parse(run.parts.at(part).metadata.at("ddprun.optimizer")).at("param_groups");
}

std::vector<std::string> names_in(const shards::ShardedRun& run, const std::string& part) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : run.parts.at(part).tensors) names.push_back(name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("DCP folder: a nested optimizer with parameters by name") {
  Folder folder;
  folder.tensor({"model", "fc.weight"}, {5, 2}, 3);
  folder.tensor({"optim", "state", "fc.weight", "exp_avg"}, {5, 2}, 4);
  folder.tensor({"optim", "state", "fc.weight", "step"}, {});
  folder.tensor({"optim", "state", "gone", "step"}, {});
  folder.value({"optim", "param_groups"},
               {{{"lr", 0.1}, {"betas", {0.9, 0.99}}, {"fused", nullptr}, {"params", {"fc.weight"}}},
                {{"lr", 0.2}, {"params", {"fc.bias"}}}});
  const auto run = folder.read();
  CHECK(names_in(run, "model.safetensors") == Names{"fc.weight"});
  CHECK(run.parts.at("model.safetensors").tensors.at("fc.weight").chunks.size() == 3);
  CHECK(names_in(run, "optim.safetensors") == Names{"state.fc.weight.exp_avg", "state.fc.weight.step"});
  CHECK(run.parts.at("optim.safetensors").tensors.at("state.fc.weight.exp_avg").chunks.size() ==
        3);  // the last is empty
  CHECK(groups_in(run) ==
        json{{{"lr", 0.1}, {"betas", {0.9, 0.99}}, {"params", {"fc.weight"}}}, {{"lr", 0.2}, {"params", {"fc.bias"}}}});
  CHECK(run.skipped.at("optim.state.gone.step") == "state of no parameter in the optimizer's groups");
}

TEST_CASE("DCP folder: parameters by number are counted through all groups") {
  Folder folder;
  folder.tensor({"optimizer", "state", "4", "momentum_buffer"}, {2});
  folder.tensor({"optimizer", "state", "1", "momentum_buffer"}, {3});
  folder.value({"optimizer", "param_groups"}, {{{"lr", 1}, {"params", {0, 4}}}, {{"lr", 2}, {"params", {1}}}});
  const auto run = folder.read();
  CHECK(names_in(run, "optim.safetensors") == Names{"state.#1.momentum_buffer", "state.#2.momentum_buffer"});
  CHECK(run.parts.at("optim.safetensors").tensors.at("state.#2.momentum_buffer").shape == std::vector<int64_t>{3});
  CHECK(groups_in(run) == json{{{"lr", 1}, {"params", {"#0", "#1"}}}, {{"lr", 2}, {"params", {"#2"}}}});
  CHECK_FALSE(run.parts.contains("model.safetensors"));
}

TEST_CASE("DCP folder: a flattened optimizer has a group for each set of equal options") {
  Folder folder;
  folder.tensor({"optim_d", "state.b.weight.exp_avg"}, {2});
  folder.tensor({"optim_d", "state.b.exp_avg"}, {3});
  for (const auto& [name, rate] : {std::pair{"b.weight", 0.1}, {"a", 0.2}, {"b", 0.1}}) {
    folder.value({"optim_d", std::string("param_groups.") + name + ".lr"}, rate);
    folder.value({"optim_d", std::string("param_groups.") + name + ".fused"}, nullptr);
  }
  const auto run = folder.read();
  CHECK(names_in(run, "optim-d.safetensors") == Names{"state.b.exp_avg", "state.b.weight.exp_avg"});
  CHECK(groups_in(run, "optim-d.safetensors") ==
        json{{{"lr", 0.1}, {"params", {"b.weight", "b"}}}, {{"lr", 0.2}, {"params", {"a"}}}});
}

TEST_CASE("DCP folder: several optimizers by name and by number, and one alone in a list") {
  Folder folder;
  folder.value({"optimizers", "gen", "param_groups"}, {{{"lr", 1}, {"params", {"a"}}}});
  folder.value({"optimizers", "dis", "param_groups"}, {{{"lr", 2}, {"params", {"b"}}}});
  CHECK(folder.read().parts.size() == 2);
  CHECK(groups_in(folder.read(), "optim-dis.safetensors")[0]["lr"] == 2);
  Folder sole;
  sole.value({"optimizer_states"}, {{{"state", json::object()}, {"param_groups", {{{"lr", 3}, {"params", {0}}}}}}});
  CHECK(groups_in(sole.read())[0]["lr"] == 3);
}

TEST_CASE("DCP folder: a bare optimizer's state dict, and a bare model's") {
  Folder optimizer;
  optimizer.value({"param_groups"}, {{{"lr", 3}, {"params", {"w"}}}});
  optimizer.tensor({"state", "w", "step"}, {});
  CHECK(names_in(optimizer.read(), "optim.safetensors") == Names{"state.w.step"});
  Folder model;
  model.tensor({"model.embed.weight"}, {4, 2}, 2);
  model.tensor({"state.x"}, {2});
  model.value({"fc._extra_state"}, {{"a", 1}});
  const auto run = model.read();
  CHECK(names_in(run, "model.safetensors") == Names{"model.embed.weight", "state.x"});
  CHECK(run.parts.size() == 1);
}

TEST_CASE("DCP folder: scaler, schedule, sampler and plain values are as of a .pt file") {
  Folder folder;
  folder.tensor({"app", "model", "w"}, {2});
  folder.value({"app", "scaler"}, {{"scale", 2.0}});
  folder.value({"app", "lr_scheduler"},
               {{"last_epoch", 3}, {"_schedulers", {{{"gamma", 0.5}}, {{"milestones", {{"30", 1}}}}}}});
  folder.value({"app", "sampler"}, {{"epoch", 2}});
  folder.value({"app", "iteration"}, 70);
  folder.value({"app", "best"}, {{"__float__", "inf"}});
  folder.value({"app", "name"}, "net");
  folder.value({"app", "odd"}, {1, 2});
  folder.value({"app", "other"}, {{"x", 1}});
  const auto run = folder.read();
  CHECK(json::parse(run.texts.at("scaler.state")) == json{{"scale", 2.0}});
  CHECK(json::parse(run.texts.at("schedule.state")) ==
        json{{"last_epoch", 3}, {"_schedulers", {{{"gamma", 0.5}}, {{"milestones", {{"30", 1}}}}}}});
  CHECK(json::parse(run.texts.at("sampler.state")) == json{{"epoch", 2}});
  CHECK(json::parse(run.texts.at("trainer.json")) ==
        json{{"iteration", 70}, {"step", 70}, {"best", {{"__float__", "inf"}}}, {"name", "net"}});
  CHECK(run.skipped == std::map<std::string, std::string>{{"app.other.x", "a value under an unknown key"},
                                                          {"odd", "a list or tuple"}});
}

TEST_CASE("DCP folder: missing and short files, and metadata of each rank, are named") {
  Folder folder;
  folder.tensor({"model", "w"}, {8, 2}, 2);
  const auto path = folder.write();
  CHECK(dcp::is_dcp_folder(path));
  const auto refused = [&](const std::string& what) {
    CHECK_THROWS_MATCHES(dcp::read_dcp_folder(folder.file_system, path), std::runtime_error,
                         MessageMatches(ContainsSubstring(path.string()) && ContainsSubstring(what)));
  };
  std::filesystem::resize_file(path / "__1_0.distcp", 100);
  refused("the file __1_0.distcp of rank 1 is too short: it has 100 bytes, but 'model.w' needs");
  std::filesystem::remove(path / "__1_0.distcp");
  refused("the file __1_0.distcp of rank 1 is missing, which holds 'model.w'");
  std::filesystem::rename(path / ".metadata", path / "__1.metadata");
  CHECK(dcp::is_dcp_folder(path));
  refused("it has __1.metadata, the metadata of a single rank");
  std::filesystem::remove(path / "__1.metadata");
  CHECK_FALSE(dcp::is_dcp_folder(path));
  refused("it has no .metadata");
}

TEST_CASE("DCP folder: two items at the same bytes are refused") {
  using test::DcpPickle;
  Folder folder;
  folder.tensor({"a"}, {2});
  folder.tensor({"b"}, {2});
  const auto path = folder.write();
  const auto written = dcp::parse_metadata(test::read_file(path / ".metadata"));
  const std::vector<int64_t> begin{0};
  const auto item = [&](const std::string& key, size_t number, int64_t more) {
    const auto& place = written.entries.at(number).chunks.at(0).item;
    return DcpPickle::Item{
        .key = key,
        .description = DcpPickle::tensor("float32", {2}, {{.offsets = {0}, .sizes = {2}}}),
        .places = {DcpPickle::place(key, &begin, written.files.at(place.file), static_cast<int64_t>(place.begin),
                                    static_cast<int64_t>(place.size) + more)}};
  };
  const auto error = [&](const std::vector<DcpPickle::Item>& items) {
    test::write_file(path / ".metadata", DcpPickle::metadata(items));
    return test::error_of<std::runtime_error>([&] { dcp::read_dcp_folder(folder.file_system, path); });
  };
  CHECK(error({item("a", 0, 0), item("b", 1, 0)}) == "no error");
  CHECK_THAT(error({item("a", 0, 0), item("b", 0, 0)}),
             ContainsSubstring("'a'") && ContainsSubstring("'b' at the same bytes of __0_0.distcp"));
  CHECK_THAT(error({item("a", 0, 1), item("b", 1, 0)}), ContainsSubstring("at the same bytes"));
}

TEST_CASE("DCP folder: a damaged value is named") {
  Folder folder;
  folder.value({"epoch"}, 3);
  const auto path = folder.write();
  {
    std::fstream file(path / "__0_0.distcp", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(66);
    file.put('x');
  }
  CHECK_THROWS_MATCHES(dcp::read_dcp_folder(folder.file_system, path), std::runtime_error,
                       MessageMatches(ContainsSubstring("the value 'epoch' in __0_0.distcp of rank 0 is damaged")));
}

TEST_CASE("DCP item: elements of small and large archives are found without the rest") {
  for (const int64_t rows : {1, 40, 9000}) {
    Folder folder;
    folder.tensor({"w"}, {rows, 3}, 1, "float64");
    const auto path = folder.write() / "__0_0.distcp";
    const auto file = folder.file_system.open(path);
    pt::TensorItem item{
        .begin = 0, .size = folder.file_system.size(file, path), .dtype = "float64", .sizes = {rows, 3}};
    const auto place = pt::find_elements(folder.file_system, file, path, item);
    CHECK(place.is_row_major);
    CHECK_FALSE(place.is_deflated);
    CHECK(place.size == static_cast<uint64_t>(rows) * 24);
    CHECK(place.storage_begin == place.begin);
    std::string range(place.size, '\0');
    folder.file_system.read(file, range.data(), range.size(), place.begin, path);
    CHECK(range == pt::read_tensor_item(folder.file_system, file, path, item));
    auto wrong = item;
    wrong.sizes = {3, rows + 1};
    CHECK_THROWS_MATCHES(pt::find_elements(folder.file_system, file, path, wrong), pt::FormatError,
                         MessageMatches(ContainsSubstring("but the folder's metadata says torch.float64")));
    wrong = item;
    --wrong.size;
    CHECK_THROWS_AS(pt::find_elements(folder.file_system, file, path, wrong), pt::FormatError);
    wrong.begin = 1;
    CHECK_THROWS_AS(pt::find_elements(folder.file_system, file, path, wrong), pt::FormatError);
  }
}

TEST_CASE("DCP writer: what Python could not read is refused") {
  Folder folder;
  const auto path = folder.write();
  dcp::DcpFile file(folder.file_system, path, 2, 1);
  const dcp::DcpTensor tensor{.path = {"w"}, .dtype = "float32", .shape = {4}};
  const auto two = [](storage::ByteSink& sink) { sink.write("12345678", 8); };
  CHECK_THROWS_AS(file.add_tensor(tensor, {.offsets = {3}, .sizes = {2}}, two), std::invalid_argument);
  CHECK_THROWS_AS(
      file.add_tensor({.path = {"w"}, .dtype = "float3", .shape = {4}}, {.offsets = {0}, .sizes = {2}}, two),
      std::invalid_argument);
  CHECK_THROWS_AS(file.add_value({"v"}, "{"), std::invalid_argument);
  CHECK_THROWS_AS(file.add_tensor(tensor, {.offsets = {0}, .sizes = {3}}, two), std::length_error);

  dcp::DcpRecord record{.path = {"a", "b"}, .is_tensor = true, .dtype = "int8", .shape = {4}, .box = {{0}, {2}}};
  auto other = record;
  const auto refused = [&] {
    CHECK_THROWS_AS(dcp::write_dcp_metadata(folder.file_system, path / "none", {record, other}), std::invalid_argument);
  };
  refused();  // two chunks at one place
  other.box = {{2}, {2}};
  other.path = {"a.b"};
  refused();  // one key
  other.path = record.path;
  other.dtype = "uint8";
  refused();
}

TEST_CASE("DCP writer: lists that hold objects are taken apart as Python does") {
  Folder folder;
  folder.value({"v"}, {{"plain", {1, {2, 3}}}, {"mixed", {1, {{"x", 2}}}}, {"none", json::object()}});
  const auto path = folder.write();
  dcp::DcpFile file(folder.file_system, path, 9);
  file.add_value({"v"}, R"({"plain": [1, [2, 3]], "mixed": [1, [{"x": 2}]], "none": {}, "inf": {"__float__": "inf"}})");
  std::vector<std::string> keys;
  for (const auto& record : file.finish()) keys.push_back(dcp::flat_key(record.path));
  CHECK(keys == Names{"v.inf", "v.mixed.0", "v.mixed.1.0.x", "v.plain"});
}
