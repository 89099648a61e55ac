// An index may come from anywhere: it names files of its own folder, or it is refused.
#include "checkpoint/core/sharded_index.h"

#include <nlohmann/json.hpp>

#include <ctime>
#include <stdexcept>
#include <string>

#include "checkpoint/core/shallow_json.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using namespace std::string_literals;
using Catch::Matchers::ContainsSubstring;
using test::ElementsAre;
using test::error_of;

std::string index_of(const std::string& file, const std::string& tensor = "fc.weight") {
  return nlohmann::json{{"weight_map", {{tensor, file}}}}.dump();
}

TEST_CASE("ShardedIndex: tensors are found by their file, in folders below as well") {
  const auto index = parse_sharded_index(
      R"({"weight_map": {"b": "1.safetensors", "a": "1.safetensors", "": "below/2.safetensors"}, "x": [[]]})");
  REQUIRE(index.size() == 2);
  CHECK_THAT(index.at("1.safetensors"), ElementsAre("a", "b"));
  CHECK_THAT(index.at("below/2.safetensors"), ElementsAre(""));
}

TEST_CASE("ShardedIndex: a file that would lie elsewhere is refused with the tensor's name") {
  for (const auto& file : {""s, "/etc/passwd"s, "../model"s, "a/../../b"s, "a/.."s, "."s, "./a"s, "a/./b"s, "a/"s,
                           "a\0b"s, "..\\a"s, "C:\\a"s, "//server/a"s, "a/../b"s}) {
    CAPTURE(file);
    CHECK_THAT(error_of<std::invalid_argument>([&] { parse_sharded_index(index_of(file)); }),
               ContainsSubstring("tensor 'fc.weight'") && ContainsSubstring("not a file name inside the index"));
  }
  for (const auto& file : {"..."s, "..a"s, "a..b/c"s, "~"s, "\xc3\xa4 b"s, "-rf"s, std::string(255, 'n')}) {
    CAPTURE(file);
    CHECK(parse_sharded_index(index_of(file)).contains(file));
  }
}

TEST_CASE("ShardedIndex: a file that is an index itself is refused, as it could lead back to this one") {
  for (const auto* file : {"model.safetensors.index.json", "below/other.index.json", ".index.json"}) {
    CHECK_THAT(error_of<std::invalid_argument>([&] { parse_sharded_index(index_of(file)); }),
               ContainsSubstring("tensor 'fc.weight'") && ContainsSubstring("which is an index itself"));
  }
  CHECK(parse_sharded_index(index_of("index.json")).contains("index.json"));
}

TEST_CASE("ShardedIndex: 64 levels are read, also with brackets in a text, and no more") {
  const auto nested = [](size_t levels) { return std::string(levels, '[') + R"("\"[[{{")" + std::string(levels, ']'); };
  CHECK(parse_shallow_json(nested(64)).dump() == nested(64));
  CHECK_THROWS_AS(parse_shallow_json(nested(65)), std::invalid_argument);
  const std::string text = R"({"weight_map": {"a[[\\": "b"}, "x": ")" + std::string(100, '{') + "\"}";
  CHECK(parse_sharded_index(text).contains("b"));
}

// nlohmann's parser goes through an array again after each object in it when it has a callback.
TEST_CASE("ShardedIndex: objects in a list take no longer than lists in it") {
  const auto seconds = [](const std::string& item) {
    std::string text = "[";
    for (int i = 0; i < 100'000; ++i) text += item + ",";
    const auto begin = std::clock();
    CHECK_THROWS_AS(parse_sharded_index(text + item + "]"), std::invalid_argument);
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  const double lists = seconds("[]");
  CHECK(seconds("{}") < 5 * lists + 0.2);
}

TEST_CASE("ShardedIndex: nothing in a refusal is a command to the terminal") {
  const auto message = error_of([] { parse_sharded_index(index_of("/\x1b[2J", "\x1b]0;title\7")); });
  CHECK(message.find('\x1b') == std::string::npos);
  CHECK(message.find('\7') == std::string::npos);
}

TEST_CASE("ShardedIndex: other text is refused") {
  std::string deep = R"({"weight_map": {"a": )";
  for (int i = 0; i < 100'000; ++i) deep += '[';
  for (const auto& text :
       {""s, "["s, "{}"s, "[]"s, "null"s, R"({"weight_map": []})"s, R"({"weight_map": {}})"s,
        R"({"weight_map": {"a": 1}})"s, R"({"weight_map": {"a": null}})"s, R"({"weight_map": {"a": ["b"]}})"s,
        R"({"weight_map": {"a": "b"}} x)"s, "{\"weight_map\": {\"a\": \"\xff\"}}"s, deep}) {
    INFO(text.substr(0, 50));
    CHECK_THROWS_AS(parse_sharded_index(text), std::invalid_argument);
  }
}

TEST_CASE("ShardedIndex: is known by its name") {
  CHECK(is_sharded_index("a/model.safetensors.index.json"));
  CHECK(is_sharded_index("pytorch_model.bin.index.json"));
  for (const auto* path :
       {"", "index.json", "a.index.json/", "a.index.json.bak", "model.safetensors", "x.index.JSON"}) {
    INFO(path);
    CHECK_FALSE(is_sharded_index(path));
  }
}

TEST_CASE("ShardedIndex: a folder stands for the index in it before any single file") {
  const test::TemporaryFolder folder;
  CHECK_THAT(error_of<std::runtime_error>([&] { model_in_folder(folder.path()); }),
             ContainsSubstring(folder.path().string()) && ContainsSubstring("without model.safetensors"));
  for (const auto* name :
       {"pytorch_model.bin", "pytorch_model.bin.index.json", "model.safetensors", "model.safetensors.index.json"}) {
    test::write_file(folder / name, "");
    CHECK(model_in_folder(folder.path()) == folder / name);
    CHECK(find_model_in_folder(folder.path()) == folder / name);
  }
  CHECK_THROWS_AS(model_in_folder(folder / "none"), std::runtime_error);
  CHECK_FALSE(find_model_in_folder(folder / "none"));
}

TEST_CASE("ShardedIndex: links are followed, as caches of downloads need it") {
  const test::TemporaryFolder folder;
  test::write_file(folder / "blob", "");
  std::filesystem::create_symlink("nowhere", folder / "model.safetensors.index.json");
  std::filesystem::create_symlink("blob", folder / "model.safetensors");
  UNSCOPED_INFO("a link to nothing is not an index");
  CHECK(model_in_folder(folder.path()) == folder / "model.safetensors");
}

}  // namespace
}  // namespace ddp
