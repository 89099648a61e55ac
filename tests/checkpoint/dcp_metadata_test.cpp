#include "checkpoint/dcp/metadata.h"
#include "checkpoint/pt/pickler.h"
#include "tests/checkpoint/dcp_pickles.h"
#include "tests/support/catch.h"

namespace {

using namespace ddp;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using test::DcpPickle;
using Item = DcpPickle::Item;

const std::vector<int64_t> kFirst = {0, 0};
const std::vector<int64_t> kSecond = {2, 0};

Item matrix(const DcpPickle::Write& format = DcpPickle::format_number()) {
  return {.key = "model.w",
          .description = DcpPickle::tensor("float32", {3, 2},
                                           {{.offsets = {0, 0}, .sizes = {2, 2}},
                                            {.offsets = {2, 0}, .sizes = {1, 2}},
                                            {.offsets = {3, 0}, .sizes = {0, 2}}},
                                           format),
          .places = {DcpPickle::place("model.w", &kSecond, "__1_0.distcp", 7, 100),
                     DcpPickle::place("model.w", &kFirst, "__0_0.distcp", 0, 90)},
          .path = [](pt::Pickler& pickler) {
            pickler.begin_tuple();
            pickler.text("model");
            pickler.text("w");
            pickler.end_tuple();
          }};
}

Item number(const std::string& key) {
  return {.key = key,
          .description = DcpPickle::value(),
          .places = {DcpPickle::place(key, nullptr, "__0_0.distcp", 200, 50)}};
}

using Names = std::vector<std::string>;

DcpPickle::Write path_of(const Names& parts) {
  return [=](pt::Pickler& pickler) {
    pickler.begin_tuple();
    for (const auto& part : parts) pickler.text(part);
    pickler.end_tuple();
  };
}

void check_refused(const std::vector<Item>& items, const std::string& message) {
  CHECK_THROWS_MATCHES(dcp::parse_metadata(DcpPickle::metadata(items)), pt::FormatError,
                       MessageMatches(ContainsSubstring(message)));
}

}  // namespace

TEST_CASE("DCP metadata: tensors with their chunks, values, and paths") {
  const auto metadata = dcp::parse_metadata(DcpPickle::metadata({number("epoch"), matrix()}));
  REQUIRE(metadata.entries.size() == 2);
  // planner_data has the order of the state dict.
  const auto& tensor = metadata.entries[0];
  CHECK(tensor.key == "model.w");
  CHECK(tensor.path == dcp::Path{"model", "w"});
  CHECK(tensor.dtype == "float32");
  CHECK(tensor.shape == std::vector<int64_t>{3, 2});
  REQUIRE(tensor.chunks.size() == 2);  // without the empty one, which no file holds
  CHECK(tensor.chunks[1].box == shards::Box{.offsets = {2, 0}, .sizes = {1, 2}});
  CHECK(metadata.files.at(tensor.chunks[1].item.file) == "__1_0.distcp");
  CHECK(tensor.chunks[1].item.begin == 7);
  CHECK(tensor.chunks[1].item.size == 100);
  const auto& value = metadata.entries[1];
  CHECK_FALSE(value.is_tensor);
  CHECK(value.path == dcp::Path{"epoch"});
  CHECK(value.item.begin == 200);
}

TEST_CASE("DCP metadata: paths of every Python's pathlib and enumerators of Python 3.11 are read") {
  for (const char* module : {"pathlib", "pathlib._local"}) {
    const auto folder = [&](pt::Pickler& pickler) {
      pickler.global(module, "PosixPath");
      pickler.begin_tuple();
      pickler.text("/");
      pickler.text("run");
      pickler.end_tuple();
      pickler.call();
    };
    CHECK(dcp::parse_metadata(DcpPickle::metadata({matrix(DcpPickle::format_attribute())}, folder)).entries.size() ==
          1);
  }
}

TEST_CASE("DCP metadata: a name that metadata does not have is refused and named") {
  const auto call = [](pt::Pickler& pickler) {
    pickler.global("posix", "system");
    pickler.begin_tuple();
    pickler.text("id");
    pickler.end_tuple();
    pickler.call();
  };
  CHECK_THROWS_MATCHES(dcp::parse_metadata(DcpPickle::metadata({matrix()}, call)), pt::FormatError,
                       MessageMatches(ContainsSubstring("asks for 'posix.system'")));
  const auto attribute = [](pt::Pickler& pickler) {
    pickler.global("builtins", "getattr");
    pickler.begin_tuple();
    pickler.global("torch", "float32");
    pickler.text("__class__");
    pickler.end_tuple();
    pickler.call();
  };
  CHECK_THROWS_MATCHES(dcp::parse_metadata(DcpPickle::metadata({matrix()}, attribute)), pt::FormatError,
                       MessageMatches(ContainsSubstring("'builtins.getattr' with arguments that do not fit")));
}

TEST_CASE("DCP metadata: items of stream transforms are refused with the transform's name") {
  auto item = number("epoch");
  item.places = {DcpPickle::place("epoch", nullptr, "__0_0.distcp", 0, 5, [](pt::Pickler& pickler) {
    pickler.text("transform_descriptors");
    pickler.begin_list();
    pickler.text("stream.zstd");
    pickler.end_list();
  })};
  check_refused({item}, "the item 'epoch' was written through the stream transform 'stream.zstd'");
}

TEST_CASE("DCP metadata: what does not fit together is refused and named") {
  auto item = matrix();
  item.places.pop_back();
  check_refused({item}, "no file holds the chunk at [0, 0] of 'model.w'");
  item = matrix();
  item.description = DcpPickle::tensor("float32", {3, 2},
                                       {{.offsets = {0, 0}, .sizes = {2, 2}}, {.offsets = {0, 0}, .sizes = {1, 2}}});
  check_refused({item}, "two chunks of 'model.w' are at [0, 0]");
  item.description = DcpPickle::tensor("float32", {3, -2}, {});
  check_refused({item}, "'model.w' has no shape");
  item = number("epoch");
  item.places.clear();
  check_refused({item}, "no file holds the value 'epoch'");
  item.places = {DcpPickle::place("epoch", nullptr, "../secret", 0, 5)};
  check_refused({item}, "'../secret', which is not a file of the folder");
  item.places = {DcpPickle::place("epoch", nullptr, "__0_0.distcp", -1, 5)};
  check_refused({item}, "the place of 'epoch' is incomplete");
  CHECK_THROWS_AS(dcp::parse_metadata("\x80\2}."), pt::FormatError);
  CHECK_THROWS_AS(dcp::parse_metadata(""), pt::FormatError);
}

TEST_CASE("DCP metadata: a class in the place of a dtype is refused") {
  auto item = matrix();
  item.description = DcpPickle::tensor("Size", {0}, {});
  check_refused({item}, "the tensor 'model.w' has no dtype");
}

TEST_CASE("DCP metadata: a path that is not its key's is refused") {
  auto item = number("optim.state.w");
  for (const Names& parts : {Names{"other"}, Names{"optim", "stat%", "w"}, Names{"optim", "state"}, Names{"", ""},
                             Names{"optim", "state", "w", "x"}, Names{}}) {
    item.path = path_of(parts);
    check_refused({item}, "the path of 'optim.state.w' in planner_data has other parts than its name");
  }
  item.path = [](pt::Pickler& pickler) {
    pickler.begin_tuple();
    pickler.text("optim");
    pickler.none();
    pickler.end_tuple();
  };
  check_refused({item}, "it begins with 'optim'");
  item.path = path_of({"optim", "state", "w"});
  CHECK(dcp::parse_metadata(DcpPickle::metadata({item})).entries[0].path == dcp::Path{"optim", "state", "w"});
  item.path = [](pt::Pickler& pickler) { pickler.integer(3); };  // of another planner
  CHECK(dcp::parse_metadata(DcpPickle::metadata({item})).entries[0].path == dcp::Path{"optim.state.w"});
}

TEST_CASE("DCP metadata: the path of an item that there is not is refused where another item has none") {
  auto item = number("a.b");
  auto gone = item;
  gone.path = path_of({"a", "b"});
  gone.path_key = "a.c";
  check_refused({gone}, "planner_data has the path of 'a.c', which is not an item, but none of 'a.b'");
  item.path = path_of({"a", "b"});
  gone.description = {};
  gone.places = {};
  CHECK(dcp::parse_metadata(DcpPickle::metadata({item, gone})).entries.size() == 1);
}
