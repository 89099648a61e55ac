// What write_pt() writes is what find_run() and bytes_of() give back, tied and odd tensors included.
#include "checkpoint/pt/pt_writer.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "checkpoint/pt/pt_file.h"
#include "checkpoint/pt/run_state.h"
#include "tests/checkpoint/text_sink.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp::pt {
namespace {

using nlohmann::json;
using namespace std::string_literals;
using Catch::Matchers::ContainsSubstring;
using test::ElementsAre;

PtFile written(const PtContents& contents) {
  test::TextSink sink;
  write_pt(sink, contents);
  return {storage::own_bytes(sink.text), "run.pt"};
}

std::string bytes_of(const PtFile& file, const std::string& name) {
  return std::string(file.bytes_of(file.root().find(name)->tensor()));
}

TEST_CASE("PtWriter: tied tensors share a storage, others none") {
  const std::string first = "01234567", second = "01234567";
  const auto file = written({.model = {{.name = "a", .dtype = "int8", .sizes = {8}, .bytes = first},
                                       {.name = "tied", .dtype = "int8", .sizes = {2, 4}, .bytes = first},
                                       {.name = "equal", .dtype = "int8", .sizes = {8}, .bytes = second},
                                       {.name = "part", .dtype = "int8", .sizes = {4}, .bytes = {first.data(), 4}}}});
  const auto storage = [&](const char* name) { return file.root().find(name)->tensor().storage; };
  CHECK(storage("a") == storage("tied"));
  CHECK((std::set{storage("a"), storage("equal"), storage("part")}.size() == 3));
  CHECK(bytes_of(file, "tied") == first);
  CHECK(bytes_of(file, "part") == "0123");
}

// torch.load gives a storage the dtype by which it meets it first: the second tensor would have wrong numbers.
TEST_CASE("PtWriter: the same bytes as two dtypes are two storages") {
  const std::string bytes = "01234567";
  const auto file = written({.model = {{.name = "floats", .dtype = "float32", .sizes = {2}, .bytes = bytes},
                                       {.name = "integers", .dtype = "int32", .sizes = {2}, .bytes = bytes},
                                       {.name = "wide", .dtype = "uint64", .sizes = {}, .bytes = bytes},
                                       {.name = "again", .dtype = "int32", .sizes = {2}, .bytes = bytes}}});
  const auto storage = [&](const char* name) { return file.root().find(name)->tensor().storage; };
  CHECK((std::set{storage("floats"), storage("integers"), storage("wide")}.size() == 3));
  CHECK(storage("integers") == storage("again"));
  CHECK(file.root().find("integers")->tensor().dtype == "int32");
}

TEST_CASE("PtWriter: empty tensors keep dtype and shape, whatever lies at their address") {
  const std::string bytes = "0123";
  const auto file = written({.model = {{.name = "none", .dtype = "float32", .sizes = {0, 3}, .bytes = {}},
                                       {.name = "at", .dtype = "int64", .sizes = {0}, .bytes = {bytes.data(), 0}},
                                       {.name = "some", .dtype = "int8", .sizes = {4}, .bytes = bytes},
                                       {.name = "number", .dtype = "float32", .sizes = {}, .bytes = bytes}}});
  CHECK_THAT(file.root().find("none")->tensor().sizes, ElementsAre(0, 3));
  CHECK(file.root().find("at")->tensor().dtype == "int64");
  CHECK(bytes_of(file, "none").empty());
  CHECK(bytes_of(file, "some") == bytes);
  CHECK(bytes_of(file, "number") == bytes);
}

TEST_CASE("PtWriter: any name of a tensor comes back") {
  const std::string bytes = "x";
  PtContents contents;
  for (const auto& name : {""s, "."s, "a\0b"s, "\xc3\xa4"s, "state"s, "__metadata__"s, std::string(70'000, 'n')}) {
    contents.model.push_back({.name = name, .dtype = "bool", .sizes = {1}, .bytes = bytes});
  }
  const auto file = written(contents);
  for (const auto& tensor : contents.model) {
    INFO(tensor.name.substr(0, 20));
    REQUIRE(file.root().find(tensor.name) != nullptr);
    CHECK(bytes_of(file, tensor.name) == "x");
  }
}

TEST_CASE("PtWriter: a run comes back part by part") {
  const std::string weight = "0123", step = "4567", rng = "random", object = "\0\xff own"s;
  PtContents contents{.model = {{.name = "a.w", .dtype = "float32", .sizes = {1}, .bytes = weight}}};
  contents.optimizers[""] = {
      .groups =
          R"({"type":"AdamW","param_groups":[{"params":["b","a.w"],"lr":0.5,"betas":[0.9,{"__float__":"inf"}]}]})",
      .tensors = {{.name = "state.a.w.step", .dtype = "float32", .sizes = {}, .bytes = step}}};
  contents.optimizers["g"] = {.groups = R"({"type":"SGD","param_groups":[]})"};
  contents.rng = {{{.name = "cpu", .dtype = "uint8", .sizes = {6}, .bytes = rng}}, {}};
  contents.per_rank = {{}, {{"mine", object}}};
  contents.shared = {{"ours", object}, {"", ""}};
  contents.objects = {{"scaler", object}};
  contents.values = R"({"step": 7, "world_size": 2, "values": {"x": {"__float__": "nan"}}})";
  const auto file = written(contents);
  const auto run = find_run(file);
  CHECK(file.bytes_of(run.model.tensors.at("a.w")) == weight);
  const auto& optimizer = run.optimizers.at("");
  UNSCOPED_INFO("Python counts parameters from the first group on: a.w is the second");
  CHECK(file.bytes_of(optimizer.tensors.at("state.#1.step")) == step);
  const auto group = json::parse(optimizer.metadata.at(kOptimizerMetadata))["param_groups"][0];
  CHECK(group["lr"] == 0.5);
  CHECK(group["decoupled_weight_decay"] == true);
  CHECK(run.optimizers.contains("g"));
  REQUIRE(run.rng.size() == 2);
  CHECK(file.bytes_of(run.rng[0].at("cpu")) == rng);
  CHECK(run.rng[1].empty());
  CHECK(run.per_rank.at(1).at("mine") == object);
  CHECK(run.shared.at("ours") == object);
  CHECK(run.shared.at("").empty());
  CHECK(run.scaler == object);
  CHECK((run.step == 7 && run.world_size == 2));
  CHECK(json::parse(run.own_values)["x"] == json{{"__float__", "nan"}});
}

TEST_CASE("PtWriter: a value with the name of a part is refused, and kept where there is no such part") {
  const std::string bytes = "0123";
  PtContents contents{.model = {{.name = "w", .dtype = "float32", .sizes = {1}, .bytes = bytes}}};
  contents.optimizers[""] = {.groups = R"({"type":"SGD","param_groups":[]})"};
  contents.optimizers["g"] = contents.optimizers[""];
  contents.rng = {{{.name = "cpu", .dtype = "uint8", .sizes = {4}, .bytes = bytes}}};
  contents.per_rank = {{{"mine", bytes}}};
  contents.shared = {{"ours", bytes}};
  contents.objects = {{"scaler", bytes}};
  const auto names = part_names(contents);
  CHECK(names == std::set<std::string>{"model", "optimizer", "optimizers", "per_rank", "rng", "scaler", "shared"});
  for (const auto& name : names) {
    INFO(name);
    contents.values = json{{name, "a text"}}.dump();
    test::TextSink sink;
    CHECK_THROWS_WITH(write_pt(sink, contents), Catch::Matchers::ContainsSubstring("'" + name + "'"));
    CHECK(written({.values = contents.values}).root().find(name)->text() == "a text");
  }
  contents.objects = {{"rng", bytes}};
  test::TextSink sink;
  CHECK_THROWS_WITH(write_pt(sink, contents), Catch::Matchers::ContainsSubstring("an object cannot be saved as 'rng'"));
}

TEST_CASE("PtWriter: numbers of every size stay what they are") {
  const auto file =
      written({.values = R"({"values": {"a": -9223372036854775808, "b": 9223372036854775807, "c": -0.0, "d": 5e-324,)"
                         R"( "e": 1e308, "f": 256, "g": -1, "h": 2147483648, "i": -2147483649, "j": 65536}})"});
  const auto* values = file.root().find("values");
  REQUIRE(values != nullptr);
  CHECK(values->find("a")->integer() == std::numeric_limits<int64_t>::min());
  CHECK(values->find("b")->integer() == std::numeric_limits<int64_t>::max());
  CHECK(std::signbit(values->find("c")->real()));
  CHECK(values->find("d")->real() == 5e-324);
  CHECK(values->find("e")->real() == 1e308);
  CHECK(values->find("f")->integer() == 256);
  CHECK(values->find("g")->integer() == -1);
  CHECK(values->find("h")->integer() == 2147483648);
  CHECK(values->find("i")->integer() == -2147483649);
  CHECK(values->find("j")->integer() == 65536);
}

TEST_CASE("PtWriter: what cannot be written is refused before a byte is") {
  const auto refused = [](const PtContents& contents) {
    test::TextSink sink;
    CHECK_THROWS_AS(write_pt(sink, contents), std::invalid_argument);
    CHECK(sink.text.empty());
  };
  refused({.model = {{.name = "a", .dtype = "float33", .bytes = "0123"}}});
  refused({.model = {{.name = "a", .dtype = "qint8", .bytes = "0123"}}});
  refused({.values = "{"});
  refused({.values = "{\"a\": \"\xff\"}"});
  refused({.values = std::string(100, '[') + std::string(100, ']')});
  for (const auto* groups : {"", "[]", "{}", R"({"type": "SGD"})", R"({"type": 5, "param_groups": []})",
                             R"({"type": "SGD", "param_groups": [{}]})", R"({"type": "SGD", "param_groups": [5]})",
                             R"({"type": "SGD", "param_groups": [{"params": [5]}]})"}) {
    INFO(groups);
    PtContents contents;
    contents.optimizers[""] = {.groups = groups};
    refused(contents);
  }
}

}  // namespace
}  // namespace ddp::pt
