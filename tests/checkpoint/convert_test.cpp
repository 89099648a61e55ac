// Checkpoints from one form into another: tensors of every dtype come back bit for bit, and what a hostile source says
// of ranks and tied weights is checked.
#include "checkpoint/tool/convert.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/core/safetensors_dtypes.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/staged_folder.h"
#include "checkpoint/tool/tensor_source.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace ddp::tool {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using safetensors::DType;
using test::error_of;
using namespace std::string_literals;

struct Tensor {
  std::string dtype{};
  std::vector<int64_t> sizes{};
  std::string bytes{};
  bool operator==(const Tensor&) const = default;
};
using Tensors = std::map<std::string, Tensor>;

class Convert {
 protected:
  static std::string safetensors_bytes(const Tensors& tensors, const Metadata& metadata = {}) {
    safetensors::Header header;
    header.metadata = metadata;
    for (const auto& [name, tensor] : tensors) {
      header.tensors.push_back(
          {.name = name, .dtype = *safetensors::dtype_of_python_name(tensor.dtype), .shape = tensor.sizes});
    }
    safetensors::assign_ranges(header.tensors);
    auto text = safetensors::format_header(header);
    for (const auto& entry : header.tensors) text += tensors.at(entry.name).bytes;
    return text;
  }
  fs::path put(const std::string& name, const std::string& bytes) {
    test::write_file(folder_ / name, bytes);
    return folder_ / name;
  }
  fs::path convert_to(const fs::path& source, const std::string& name, bool weights_only = false) {
    convert(TensorSource(source), folder_ / name, {.weights_only = weights_only});
    return folder_ / name;
  }
  fs::path checkpoint(const std::map<std::string, std::string>& files, int world_size = 1) {
    storage::FileSystem file_system;
    storage::StagedFolder staged(file_system, folder_ / "run", 5);
    for (const auto& [name, text] : files) {
      staged.write(name, [&](storage::ByteSink& sink) { sink.write(text.data(), text.size()); });
    }
    staged.commit({.sequence = 1, .world_size = world_size, .metrics = {{"loss", 0.5}}});
    return folder_ / "run" / storage::folder_name(5);
  }
  static Tensors of(const RawFile& file) {
    Tensors result;
    for (const auto& tensor : file.tensors)
      result[tensor.name] = {tensor.dtype, tensor.sizes, std::string(tensor.bytes)};
    return result;
  }
  static Tensors tensors_in(const fs::path& path, const std::string& file = "") {
    const TensorSource source(path);
    return of(source.files().at(file));
  }

  test::TemporaryFolder folder_;
};

Tensors random_tensors(std::mt19937& random, bool with_unnamed) {
  const std::vector<std::string> dtypes{"bool",
                                        "uint8",
                                        "int8",
                                        "float8_e5m2",
                                        "float8_e4m3fn",
                                        "float8_e8m0fnu",
                                        "float8_e4m3fnuz",
                                        "float8_e5m2fnuz",
                                        "int16",
                                        "uint16",
                                        "float16",
                                        "bfloat16",
                                        "int32",
                                        "uint32",
                                        "float32",
                                        "complex64",
                                        "float64",
                                        "int64",
                                        "uint64"};
  Tensors tensors;
  for (const auto& dtype : dtypes) {
    if (random() % 2 == 0) continue;
    Tensor tensor{.dtype = dtype};
    size_t bytes = pt::dtype_by_name(dtype)->bytes;
    for (unsigned axis = random() % 4; axis > 0; --axis) {
      tensor.sizes.push_back(random() % 8 == 0 ? 0 : 1 + random() % 4);
      bytes *= static_cast<size_t>(tensor.sizes.back());
    }
    tensor.bytes.resize(bytes);
    std::ranges::generate(tensor.bytes, [&] { return static_cast<char>(dtype == "bool" ? random() % 2 : random()); });
    tensors["layer." + dtype + (random() % 2 == 0 ? ".\xc3\xa4" : "")] = tensor;
  }
  if (with_unnamed && random() % 2 == 0) tensors[""] = {.dtype = "uint8", .sizes = {1}, .bytes = "x"};
  return tensors;
}

TEST_CASE_METHOD(Convert, "Convert: tensors of every dtype and shape come back bit for bit, through either form") {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const auto tensors = random_tensors(random, true);
    if (tensors.empty()) continue;
    const auto first = put("first.safetensors", safetensors_bytes(tensors));
    INFO(round);
    const auto pt = convert_to(first, "second.pt");
    REQUIRE(tensors_in(pt) == tensors);
    REQUIRE(tensors_in(convert_to(pt, "third.safetensors")) == tensors);
    REQUIRE(tensors_in(convert_to(pt, "fourth.pth")) == tensors);
    UNSCOPED_INFO("the same source makes the same bytes");
    REQUIRE(test::read_file(convert_to(first, "again.pt")) == test::read_file(pt));
  }
}

TEST_CASE("Convert: every dtype of safetensors has one name, and no other has one") {
  for (const auto* name :
       {"complex128", "complex32", "bits8", "qint8", "float4_e2m1fn_x2", "", "F32", "torch.float32"}) {
    INFO(name);
    CHECK(safetensors::dtype_of_python_name(name) == std::nullopt);
  }
  CHECK(*safetensors::dtype_of_python_name("float8_e4m3fn") == DType::kF8E4M3);
  CHECK(*safetensors::dtype_of_python_name("bfloat16") == DType::kBF16);
}

TEST_CASE_METHOD(Convert, "Convert: tied weights are found under all their names") {
  const Tensors one{{"embed", {.dtype = "float32", .sizes = {2}, .bytes = "12345678"}}};
  const auto source = put("a.safetensors",
                          safetensors_bytes(one, {{"decoder", "embed"}, {"note", "of no tensor"}, {"embed", "embed"}}));
  auto both = one;
  both["decoder"] = one.at("embed");
  CHECK(tensors_in(convert_to(source, "b.pt")) == both);
  CHECK(tensors_in(convert_to(source, "c.safetensors")) == one);
  CHECK(TensorSource(folder_ / "c.safetensors").files().at("").metadata.at("decoder") == "embed");
}

constexpr const char* kGroups = R"({"type":"SGD","param_groups":[{"lr":0.5,"params":["w"]}]})";

TEST_CASE_METHOD(Convert,
                 "Convert: a run's model, optimizers and ranks go into one file, the weights alone if that is asked") {
  const Tensors model{{"w", {.dtype = "float32", .sizes = {1}, .bytes = "1234"}}};
  const Tensors state{{"state.w.momentum_buffer", {.dtype = "float32", .sizes = {1}, .bytes = "abcd"}}};
  const Tensors ranks{{"rank.0.rng.cpu", {.dtype = "uint8", .sizes = {2}, .bytes = "r0"}},
                      {"rank.2.rng.cpu", {.dtype = "uint8", .sizes = {2}, .bytes = "r2"}},
                      {"rank.2.object.mine", {.dtype = "uint8", .sizes = {3}, .bytes = "\xff\0z"}},
                      {"other", {.dtype = "uint8", .sizes = {1}, .bytes = "x"}}};
  auto with_zero = ranks;
  with_zero["rank.2.object.mine"].bytes = std::string("\xff\0z", 3);
  const auto folder = checkpoint({{"model.safetensors", safetensors_bytes(model)},
                                  {"optim.safetensors", safetensors_bytes(state, {{"ddprun.optimizer", kGroups}})},
                                  {"optim-gen.safetensors", safetensors_bytes(state, {{"ddprun.optimizer", kGroups}})},
                                  {"ranks.safetensors", safetensors_bytes(with_zero)},
                                  {"shared-notes.state", "text"},
                                  {"trainer.json", R"({"epoch": 3})"}},
                                 3);
  const auto pt = convert_to(folder, "run.pt");
  const TensorSource source(pt);
  auto whole = model;
  whole.merge(Tensors{{"state.#0.momentum_buffer", state.at("state.w.momentum_buffer")}});
  CHECK(of(source.files().at("")) == whole);
  CHECK(of(source.files().at("optim-gen.safetensors")).at("state.#0.momentum_buffer").bytes == "abcd");
  const auto back = of(source.files().at("ranks.safetensors"));
  CHECK(back.at("rank.0.rng.cpu").bytes == "r0");
  CHECK(back.at("rank.2.rng.cpu").bytes == "r2");
  CHECK(back.at("rank.2.object.mine").bytes == with_zero.at("rank.2.object.mine").bytes);
  CHECK_FALSE(back.contains("other"));
  CHECK(source.objects().at("shared-notes.state") == "text");
  CHECK_THAT(source.values(), ContainsSubstring("\"epoch\""));
  CHECK(tensors_in(convert_to(folder, "weights.pt", true)) == model);
  CHECK(tensors_in(convert_to(folder, "weights.safetensors", true)) == model);
  CHECK_THAT(error_of([&] { convert_to(folder, "all.safetensors"); }), ContainsSubstring("give --weights-only"));
  CHECK_FALSE(fs::exists(folder_ / "all.safetensors"));
}

TEST_CASE_METHOD(Convert,
                 "Convert: what is in an optimizer's file never becomes the model's, and what is no state is named") {
  const Tensor tensor{.dtype = "float32", .sizes = {1}, .bytes = "1234"};
  const Tensors model{{"w", tensor}};
  // A field that the type has not goes with its parameter, as in Python; 'v' is not a parameter.
  const Tensors state{{"state.w.momentum_buffer", tensor}, {"state.w.mine", tensor}};
  auto with_strangers = state;
  with_strangers.merge(Tensors{{"state.v.momentum_buffer", tensor}, {"state.w.a.b", tensor}, {"w2", tensor}});
  const auto folder =
      checkpoint({{"model.safetensors", safetensors_bytes(model)},
                  {"optim.safetensors", safetensors_bytes(with_strangers, {{"ddprun.optimizer", kGroups}})},
                  {"optim-g.safetensors", safetensors_bytes(with_strangers, {{"ddprun.optimizer", kGroups}})}});
  const auto left_out = convert(TensorSource(folder), folder_ / "run.pt");
  const std::vector<std::string> strangers{"state.v.momentum_buffer", "state.w.a.b", "w2"};
  CHECK(left_out.at("tensors of optim.safetensors that are not the state of its parameters") == strangers);
  CHECK(left_out.at("tensors of optim-g.safetensors that are not the state of its parameters") == strangers);
  CHECK(left_out.size() == 2);
  auto whole = model;
  whole.merge(Tensors{{"state.#0.momentum_buffer", tensor}, {"state.#0.mine", tensor}});
  CHECK(tensors_in(folder_ / "run.pt") == whole);
  CHECK(convert(TensorSource(folder), folder_ / "weights.pt", {.weights_only = true}).empty());
  CHECK(tensors_in(folder_ / "weights.pt") == model);
}

TEST_CASE_METHOD(Convert, "Convert: an optimizer's file that does not say whose state it holds is refused by name") {
  const Tensor tensor{.dtype = "float32", .sizes = {1}, .bytes = "1234"};
  const auto* name = GENERATE("optim.safetensors", "optim-g.safetensors");
  const auto folder = checkpoint({{"model.safetensors", safetensors_bytes({{"w", tensor}})},
                                  {name, safetensors_bytes({{"state.w.momentum_buffer", tensor}})}});
  for (const auto* target : {"run.pt", "run.safetensors"}) {
    CHECK_THAT(error_of([&] { convert_to(folder, target); }),
               Catch::Matchers::StartsWith("its "s + name + " does not say whose state it holds"));
    CHECK_FALSE(fs::exists(folder_ / target));
  }
  CHECK(tensors_in(convert_to(folder, "weights.safetensors", true)) == Tensors{{"w", tensor}});
}

TEST_CASE_METHOD(Convert, "Convert: an optimizer's file with damaged groups is refused by name") {
  const Tensor tensor{.dtype = "float32", .sizes = {1}, .bytes = "1234"};
  const auto* name = GENERATE("model.safetensors", "optim.safetensors", "optim-g.safetensors");
  const auto* groups = GENERATE("{", "[]", "{}", R"({"type": 1, "param_groups": []})",
                                R"({"type": "SGD", "param_groups": {}})", R"({"type": "SGD", "param_groups": [{}]})");
  const auto model = safetensors_bytes({{"w", tensor}});
  const auto damaged = safetensors_bytes({{"w", tensor}}, {{"ddprun.optimizer", groups}});
  std::map<std::string, std::string> files = {{"model.safetensors", model}};
  files[name] = damaged;
  const auto folder = checkpoint(files);
  for (const auto* target : {"run.pt", "run.safetensors"}) {
    CHECK_THAT(error_of([&] { convert_to(folder, target); }),
               Catch::Matchers::StartsWith("its "s + name + ": an optimizer's description is damaged"));
    CHECK_FALSE(fs::exists(folder_ / target));
  }
}

TEST_CASE_METHOD(Convert, "Convert: what a .safetensors file does not hold is named, and a .pt file holds it") {
  const Tensor tensor{.dtype = "float32", .sizes = {1}, .bytes = "1234"},
      byte{.dtype = "uint8", .sizes = {1}, .bytes = "x"};
  const auto folder = checkpoint(
      {{"model.safetensors", safetensors_bytes({{"w", tensor}})},
       {"optim.safetensors", safetensors_bytes({{"state.w.momentum_buffer", tensor}}, {{"ddprun.optimizer", kGroups}})},
       {"ranks.safetensors", safetensors_bytes({{"rank.0.rng.cpu", byte}, {"rank.1.object.mine", byte}})},
       {"scaler.state", R"({"scale": 2.0})"},
       {"shared-notes.state", "text"},
       {"trainer.json", R"({"best": 0.5, "epoch": 3})"}},
      2);
  const LeftOut expected{{"objects, which need a .pt file", {"scaler", "shared-notes"}},
                         {"states of ranks, which need a .pt file", {"rank.0.rng.cpu", "rank.1.object.mine"}},
                         {"values, which need a .pt file", {"metrics", "step", "best", "epoch", "world_size"}}};
  CHECK(convert(TensorSource(folder), folder_ / "run.safetensors") == expected);
  CHECK(convert(TensorSource(folder), folder_ / "run.pt").empty());
  UNSCOPED_INFO("from that file on it is the same");
  auto of_file = expected;
  std::erase(of_file.at("values, which need a .pt file"), "metrics");
  CHECK(convert(TensorSource(folder_ / "run.pt"), folder_ / "again.safetensors") == of_file);
  CHECK(tensors_in(folder_ / "run.safetensors").size() == 2);
  UNSCOPED_INFO("who asks for the weights alone knows");
  CHECK(convert(TensorSource(folder), folder_ / "weights.safetensors", {.weights_only = true}).empty());
}

TEST_CASE_METHOD(Convert, "Convert: what a .pt file has no place for is named") {
  const Tensor tensor{.dtype = "float32", .sizes = {1}, .bytes = "1234"};
  const auto source =
      put("a.safetensors", safetensors_bytes({{"w", tensor}}, {{"format", "pt"}, {"tied", "w"}, {"author", "me"}}));
  CHECK(convert(TensorSource(source), folder_ / "a.pt") == LeftOut{{"texts of metadata", {"author"}}});
  const auto folder =
      checkpoint({{"model.safetensors", safetensors_bytes({{"w", tensor}})},
                  {"ranks.safetensors", safetensors_bytes({{"other", tensor}, {"rank.0.odd", tensor}})}});
  CHECK(convert(TensorSource(folder), folder_ / "b.pt") ==
        LeftOut{{"tensors of ranks.safetensors that are not the state of a rank", {"other", "rank.0.odd"}}});
}

TEST_CASE("Convert: what is left out is counted and named, without a file's commands") {
  CHECK(describe({}).empty());
  CHECK(describe({{"values", {"a", "b\x1b[2J"}}, {"objects", {"c"}}}) ==
        std::vector<std::string>{"objects (1): c", "values (2): a, b\\x1b[2J"});
  CHECK(describe({{"values", std::vector<std::string>(100, "v")}}).at(0) ==
        "values (100): v, v, v, v, v, v, v, v, v, v, v, v and 88 more");
}

TEST_CASE_METHOD(Convert, "Convert: ranks that are not numbers are refused with their name") {
  const auto* bad = GENERATE("rank.x.rng.cpu", "rank..rng.cpu", "rank.-1.rng.cpu", "rank.+1.rng.cpu", "rank. 1.rng.cpu",
                             "rank.1x.rng.cpu", "rank.1048576.rng.cpu", "rank.99999999999999999999.object.a");
  const Tensors ranks{{bad, {.dtype = "uint8", .sizes = {1}, .bytes = "x"}}};
  const Tensors model{{"w", {.dtype = "float32", .sizes = {1}, .bytes = "1234"}}};
  const auto folder =
      checkpoint({{"model.safetensors", safetensors_bytes(model)}, {"ranks.safetensors", safetensors_bytes(ranks)}});
  const auto message = error_of([&] { convert_to(folder, "run.pt"); });
  CHECK(message == "its ranks.safetensors names no rank: '" + std::string(bad) + "'");
  CHECK_FALSE(fs::exists(folder_ / "run.pt"));
  CHECK_NOTHROW(convert_to(folder, "weights.pt", true));
}

TEST_CASE_METHOD(Convert, "Convert: a source that is damaged is refused with its name, and writes nothing") {
  const Tensors model{{"w", {.dtype = "float32", .sizes = {1}, .bytes = "1234"}}};
  const auto whole = safetensors_bytes(model);
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto cut = put("cut.safetensors", whole.substr(0, size));
    INFO(size);
    CHECK_THAT(error_of([&] { TensorSource{cut}; }),
               ContainsSubstring("cut.safetensors is not a valid safetensors file: "));
  }
  const auto pointer = put("pointer.pt", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n");
  CHECK_THAT(error_of([&] { TensorSource{pointer}; }),
             ContainsSubstring("pointer.pt cannot be read as a .pt or safetensors file: it is a Git LFS pointer"));
  const auto old = put("old.pt", "L119547037146038801333356L\n.");  // which is a .pt file
  CHECK_THAT(error_of([&] { TensorSource{old}; }),
             ContainsSubstring("old.pt cannot be read as a .pt or safetensors file: torch.save wrote it with"));
  const auto folder = checkpoint({{"model.safetensors", whole.substr(0, whole.size() - 1)}});
  CHECK_THAT(error_of([&] { convert_to(folder, "x.pt"); }),
             ContainsSubstring("model.safetensors is not a valid safetensors file"));
  CHECK_FALSE(fs::exists(folder_ / "x.pt"));
  for (const auto* target : {"x", "x.PT", "x.ckpt", ".pt"}) {
    CHECK_THAT(error_of([&] { convert_to(put("w.safetensors", whole), target); }),
               ContainsSubstring("must end in .pt, .pth or .safetensors"));
  }
}

}  // namespace
}  // namespace ddp::tool
