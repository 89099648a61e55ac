#include "checkpoint/shards/shard_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "checkpoint/shards/chunk_reader.h"
#include "checkpoint/storage/damage.h"
#include "tests/checkpoint/chunk_files.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp::shards {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::ContainsAll;
using test::drawn;
using test::ElementsAre;
using test::error_of;
using test::Random;

TEST_CASE("ShardFileName: is read as it was made") {
  for (const auto* part : {"model.safetensors", "optim.safetensors", "optim-a-b.safetensors", "a.b.safetensors",
                           "model-00001-of-00002.safetensors"}) {
    for (const auto& [rank, ranks] : {std::pair(0, 1), {1, 4}, {63, 64}, {99998, 99999}}) {
      const auto name = parse_shard_file_name(shard_file_name(part, rank, ranks));
      REQUIRE(name.has_value());
      CHECK(name->part == part);
      CHECK(name->rank == rank);
      CHECK(name->ranks == ranks);
    }
  }
  CHECK(shard_file_name("model.safetensors", 1, 4) == "model-00002-of-00004.safetensors");
}

TEST_CASE("ShardFileName: other names are not taken for shards") {
  for (const auto* name : {"",
                           ".safetensors",
                           "model.safetensors",
                           "-00001-of-00002.safetensors",
                           "model-00000-of-00002.safetensors",
                           "model-00003-of-00002.safetensors",
                           "model-0001-of-0002.safetensors",
                           "model-000001-of-000002.safetensors",
                           "model-00001-of-00002.safetensor",
                           "model-00001-of-00002.bin",
                           "model_00001-of-00002.safetensors",
                           "model-00001_of_00002.safetensors",
                           "model--0001-of-00002.safetensors",
                           "model-+0001-of-00002.safetensors",
                           "model- 0001-of-00002.safetensors",
                           "model-00001-of--0002.safetensors",
                           "model-0000a-of-00002.safetensors",
                           "model-00001-of-00000.safetensors",
                           "model-00001-of-00002.safetensors.tmp",
                           "00001-of-00002.safetensors"}) {
    INFO(name);
    CHECK_FALSE(parse_shard_file_name(name));
  }
}

TEST_CASE("ShardFileName: a name with a rank that is not below the number of ranks is recognized") {
  for (const auto* name :
       {"model-00004-of-00003.safetensors", "model-00000-of-00003.safetensors", "optim-g-00001-of-00000.safetensors"}) {
    INFO(name);
    CHECK(is_of_no_rank(name));
  }
  for (const auto* name : {"model-00003-of-00003.safetensors", "model.safetensors", "model-4-of-3.safetensors",
                           "model-00004-of-00003.pt", "-00004-of-00003.safetensors", "block-checksums.txt", ""}) {
    INFO(name);
    CHECK_FALSE(is_of_no_rank(name));
  }
}

TEST_CASE("ShardFileName: what could not be read back is refused") {
  CHECK_THROWS_AS(shard_file_name("model.safetensors", 0, 100'000), std::invalid_argument);
  CHECK_THROWS_AS(shard_file_name("model.safetensors", -1, 2), std::invalid_argument);
  CHECK_THROWS_AS(shard_file_name("model.safetensors", 2, 2), std::invalid_argument);
  CHECK_THROWS_AS(shard_file_name("model.safetensors", 0, 0), std::invalid_argument);
  CHECK_THROWS_AS(shard_file_name("model.bin", 0, 2), std::invalid_argument);
  CHECK_THROWS_AS(shard_file_name("", 0, 2), std::invalid_argument);
  CHECK_THROWS_AS(shard_file_name(".safetensors", 0, 2), std::invalid_argument);
}

TEST_CASE("ShardFileName: shards are found by part") {
  const auto parts =
      shard_files_by_part({"MANIFEST.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                           "optim-00001-of-00001.safetensors", "rng.safetensors", "trainer.json"});
  REQUIRE(parts.size() == 2);
  CHECK_THAT(parts.at("model.safetensors"),
             ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"));
  CHECK_THAT(parts.at("optim.safetensors"), ElementsAre("optim-00001-of-00001.safetensors"));
}

TEST_CASE("ShardHeader: a dtype that the format lacks is refused with the tensor's name") {
  CHECK_THAT(error_of<std::invalid_argument>(
                 [] { shard_header({{.name = "w", .dtype = "complex128", .shape = {2}, .box = whole({2})}}, {}); }),
             ContainsSubstring("'w'") && ContainsSubstring("complex128"));
}

TEST_CASE("ShardHeader: two chunks of one tensor, and names that are no UTF-8, are refused") {
  const ChunkEntry chunk{.name = "w", .dtype = "float32", .shape = {2}, .box = whole({1})};
  auto other = chunk;
  other.box.offsets[0] = 1;
  CHECK_THAT(error_of<std::invalid_argument>([&] {
               shard_header({chunk, other}, {});
             }),
             ContainsSubstring("'w'") && ContainsSubstring("two chunks"));
  other.name = "w\xff";
  CHECK_THAT(error_of<std::invalid_argument>([&] { shard_header({chunk, other}, {}); }), ContainsSubstring("UTF-8"));
}

// Files of one part in a folder.
class ShardFolder {
 protected:
  using Names = std::vector<std::string>;

  // Writes a file with the chunks and returns its name.
  std::string put(const std::string& name, const std::vector<ChunkEntry>& chunks, const Metadata& metadata = {},
                  bool is_checked = false) {
    const auto header = shard_header(chunks, metadata);
    auto content = safetensors::format_header(header);
    std::map<std::string, const ChunkEntry*> by_name;
    for (const auto& chunk : chunks) by_name[chunk.name] = &chunk;
    for (const auto& entry : header.tensors) {
      const auto* chunk = by_name.at(entry.name);
      content += test::box_bytes(chunk->name, {.dtype = chunk->dtype, .shape = chunk->shape}, chunk->box);
    }
    test::write_file(folder_ / name, content);
    if (is_checked) checksums_[name] = test::block_checksums(content);
    return name;
  }

  // A file with this JSON as its header and so many bytes of data.
  std::string put_header(const std::string& name, const std::string& header, size_t bytes) {
    std::string length(8, '\0');
    for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i));
    test::write_file(folder_ / name, length + header + std::string(bytes, 'x'));
    return name;
  }

  // … with this text as its DCP_SHARDING_INFO, and the float32 tensor 'w' of two elements.
  std::string put_info(const std::string& name, const std::string& info) {
    std::string escaped;
    for (const char c : info) escaped.append(c == '"' || c == '\\' ? 1 : 0, '\\') += c;
    return put_header(name,
                      R"({"__metadata__":{"DCP_SHARDING_INFO":")" + escaped +
                          R"("},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                      8);
  }

  TensorCatalog read(const Names& files) { return read_shard_headers(file_system_, folder_.path(), files, checksums_); }
  std::string refusal(const Names& files) {
    return error_of<storage::DamagedCheckpoint>([&] { read(files); });
  }

  // Half of the rows of [4, 6] that `rank` of 2 has.
  static ChunkEntry half(int64_t rank, const std::string& name = "fc.weight") {
    return {.name = name, .dtype = "float32", .shape = {4, 6}, .box = {.offsets = {2 * rank, 0}, .sizes = {2, 6}}};
  }

  test::TemporaryFolder folder_;
  storage::FileSystem file_system_;
  BlockChecksums checksums_;
  const std::string first_ = "model-00001-of-00002.safetensors";
  const std::string second_ = "model-00002-of-00002.safetensors";
};

TEST_CASE_METHOD(ShardFolder, "ShardFiles: chunks are read as they were written, and their elements too") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    INFO("seed " << seed);
    Random random(seed);
    const auto ranks = static_cast<int>(drawn(random, 1, 5));
    std::vector<std::vector<ChunkEntry>> chunks(static_cast<size_t>(ranks));
    std::map<std::string, CatalogTensor> tensors;
    const std::vector<std::string> dtypes = {"float32", "bool", "bfloat16", "int64", "float8_e4m3fn", "complex64"};
    const auto count = drawn(random, 0, 8);
    for (int64_t i = 0; i < count; ++i) {
      // Names that JSON must escape.
      const auto name = "t" + std::to_string(i) + (i % 2 == 0 ? "\"\\\n\x01\xc3\xa4" : "");
      auto& tensor = tensors[name];
      tensor = {.dtype = dtypes[static_cast<size_t>(drawn(random, 0, 5))], .shape = test::drawn_shape(random)};
      const auto boxes = test::drawn_division(random, whole(tensor.shape), ranks);
      for (size_t rank = 0; rank < boxes.size(); ++rank) {
        chunks[rank].push_back({.name = name, .dtype = tensor.dtype, .shape = tensor.shape, .box = boxes[rank]});
      }
    }
    Names names;
    checksums_.clear();
    for (int rank = 0; rank < ranks; ++rank) {
      names.push_back(put(shard_file_name("model.safetensors", rank, ranks), chunks[static_cast<size_t>(rank)],
                          {{"groups", "[]"}}, drawn(random, 0, 1) == 0));
    }
    const auto catalog = read(names);
    REQUIRE(catalog.metadata == std::map<std::string, std::string>{{"groups", "[]"}});
    REQUIRE(catalog.tensors.size() == tensors.size());
    for (const auto& [name, tensor] : catalog.tensors) {
      INFO(name);
      REQUIRE(tensor.dtype == tensors.at(name).dtype);
      REQUIRE(tensor.shape == tensors.at(name).shape);
      std::string bytes(static_cast<size_t>(numel(whole(tensor.shape))) * pt::dtype_by_name(tensor.dtype)->bytes, '#');
      const std::vector<ReadRequest> requests = {
          {.name = name, .tensor = &tensor, .box = whole(tensor.shape), .target = bytes.data()}};
      read_chunks(file_system_, catalog, checksums_, requests);
      REQUIRE((bytes == test::box_bytes(name, tensor, whole(tensor.shape))));
    }
  }
}

TEST_CASE_METHOD(ShardFolder, "ShardFiles: a header is as Python's reader takes it, and the format's order") {
  const auto header = shard_header({half(1), {.name = "a", .dtype = "int64", .shape = {}, .box = {}}}, {{"k", "v"}});
  CHECK(header.metadata.at("format") == "pt");
  CHECK(header.metadata.at("DCP_VERSION") == "1.0");
  CHECK(header.metadata.at("DCP_SHARDING_INFO") ==
        R"({"a":{"saved_offsets":[],"tensor_shape":[]},"fc.weight":{"saved_offsets":[2,0],"tensor_shape":[4,6]}})");
  CHECK(header.metadata.at("k") == "v");
  CHECK(header.tensors.at(0).name == "a");
  CHECK(header.tensors.at(1).name == "fc.weight");
  CHECK_THAT(header.tensors.at(1).shape, ElementsAre(2, 6));
  CHECK(header.tensors.at(1).begin == 8);
}

TEST_CASE_METHOD(ShardFolder, "ShardFiles: files without places hold whole tensors") {
  put_header("a.safetensors", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  put_header("b.safetensors", R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})",
             8);
  const auto catalog = read({"a.safetensors", "b.safetensors"});
  CHECK(catalog.metadata.empty());
  CHECK_THAT(catalog.tensors.at("a").shape, ElementsAre(2));
  CHECK(catalog.tensors.at("b").shape.empty());
  CHECK(catalog.tensors.at("b").chunks.at(0).file == 1);
  CHECK(catalog.files.at(1) == folder_ / "b.safetensors");
  put_header("b.safetensors", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  CHECK_THAT(refusal({"a.safetensors", "b.safetensors"}), ContainsAll({"'a'", "stored twice", "b.safetensors"}));
  CHECK(read({}).tensors.empty());
}

TEST_CASE_METHOD(ShardFolder, "ShardFiles: places as Python writes them have no shape") {
  put_info(first_, R"({"w":{"saved_offsets":[2]}})");
  put_info(second_, R"({"w":{"saved_offsets":[0]},"other":{"saved_offsets":[7,7]}})");
  CHECK_THAT(read({first_, second_}).tensors.at("w").shape, ElementsAre(4));
  UNSCOPED_INFO("one of them says the shape");
  put_info(second_, R"({"w":{"saved_offsets":[0],"tensor_shape":[4]}})");
  CHECK_THAT(read({first_, second_}).tensors.at("w").shape, ElementsAre(4));
  put_info(second_, R"({"w":{"saved_offsets":[0],"tensor_shape":[3]}})");
  CHECK_THAT(refusal({first_, second_}), ContainsAll({"'w'", "[3] does not contain", first_}));
}

TEST_CASE_METHOD(ShardFolder, "ShardFiles: invalid places are refused with file, rank and tensor") {
  put_info(first_, R"({"w":{"saved_offsets":[0]}})");
  for (const auto* info : {R"({})",
                           R"({"w":[]})",
                           R"({"w":{}})",
                           R"({"w":null})",
                           R"({"w":{"saved_offsets":null}})",
                           R"({"w":{"saved_offsets":2}})",
                           R"({"w":{"saved_offsets":[]}})",
                           R"({"w":{"saved_offsets":[2,0]}})",
                           R"({"w":{"saved_offsets":[-2]}})",
                           R"({"w":{"saved_offsets":[2.0]}})",
                           R"({"w":{"saved_offsets":["2"]}})",
                           R"({"w":{"saved_offsets":[[2]]}})",
                           R"({"w":{"saved_offsets":[true]}})",
                           R"({"w":{"saved_offsets":[9223372036854775808]}})",
                           R"({"w":{"saved_offsets":[9223372036854775807]}})",
                           R"({"w":{"saved_offsets":[18446744073709551616]}})",
                           R"({"w":{"saved_offsets":[2],"tensor_shape":[]}})",
                           R"({"w":{"saved_offsets":[2],"tensor_shape":[-4]}})",
                           R"({"w":{"saved_offsets":[2],"tensor_shape":4}})",
                           R"({"w":{"saved_offsets":[2],"saved_offsets":[2]}})",
                           R"({"w":{"saved_offsets":[2]},"w":{"saved_offsets":[0]}})",
                           R"({"w":{"tensor_shape":[4]}})"}) {
    INFO(info);
    put_info(second_, info);
    CHECK_THAT(refusal({first_, second_}), ContainsAll({second_, "rank 1", "'w'"}));
  }
  for (const auto* info : {"", "[]", "null", "{", "{\"w\":", R"({"w":{"saved_offsets":[2]}}x)",
                           R"({"w":{"saved_offsets":[2]})", "\\ud800"}) {
    INFO(info);
    put_info(second_, info);
    CHECK_THAT(refusal({first_, second_}), ContainsAll({second_, "rank 1", "DCP_SHARDING_INFO"}));
  }
}

TEST_CASE_METHOD(ShardFolder, "ShardFiles: other fields of a place are passed over, however deep") {
  put_info(first_,
           R"({"w":{"saved_offsets":[0],"x":{"saved_offsets":[[7]],"w":null},"y":[1,[{}]],"z":-1.5,"t":true}})");
  CHECK_THAT(
      read({first_.substr(0, 0) + first_, put_info(second_, R"({"w":{"saved_offsets":[2]}})")}).tensors.at("w").shape,
      ElementsAre(4));
  const std::string deep(100'000, '[');
  put_info(second_, R"({"w":{"saved_offsets":[2],"x":)" + deep);
  CHECK_THAT(refusal({first_, second_}), ContainsAll({second_, "DCP_SHARDING_INFO"}));
}

TEST_CASE_METHOD(ShardFolder,
                 "ShardFiles: a missing file is named with its rank and the tensor that it had a part of") {
  put(first_, {half(0)});
  CHECK_THAT(refusal({first_, second_}),
             ContainsAll({folder_.path().string(), "missing", second_, "rank 1", "'fc.weight'", "row 2 is missing"}));
  put(second_, {half(1)});
  std::filesystem::remove(folder_ / first_);
  CHECK_THAT(refusal({first_, second_}), ContainsAll({first_, "rank 0", "'fc.weight'", "row 0 is missing"}));
  std::filesystem::remove(folder_ / second_);
  CHECK_THAT(refusal({first_, second_}), ContainsAll({first_, second_, "rank 0", "rank 1"}));
}

TEST_CASE_METHOD(ShardFolder, "ShardFiles: a file that is not among them is missed by the others' names") {
  put(first_, {{.name = "a", .dtype = "float32", .shape = {2}, .box = whole({2})}});
  CHECK_THAT(refusal({first_}), ContainsAll({"missing", second_, "rank 1"}));
  UNSCOPED_INFO("a name may say any number of ranks");
  const auto one = put("model-00001-of-99999.safetensors", {half(0), half(0, "b")});
  const auto message = refusal({one});
  CHECK_THAT(message, ContainsAll({"model-00002-of-99999.safetensors", "and others"}));
  CHECK(message.size() < 2000);
}

TEST_CASE_METHOD(ShardFolder, "ShardFiles: files of two checkpoints with other numbers of ranks are refused") {
  put(first_, {half(0)});
  put(second_, {half(1)});
  const auto other = put("model-00003-of-00003.safetensors", {half(1, "b")});
  CHECK_THAT(refusal({first_, second_, other}), ContainsAll({other, first_, "3 ranks", "2 ranks"}));
}

TEST_CASE_METHOD(ShardFolder,
                 "ShardFiles: a short file is named with its rank and a tensor of which bytes are missing") {
  const bool is_checked = GENERATE(false, true);
  const std::vector<ChunkEntry> chunks = {half(1, "a"), half(1, "b"), half(1, "c")};
  put(first_, {half(0, "a"), half(0, "b"), half(0, "c")}, {}, is_checked);
  put(second_, chunks, {}, is_checked);
  const auto content = test::read_file(folder_ / second_);
  REQUIRE_NOTHROW(read({first_, second_}));
  const auto data = content.size() - 3 * 48;
  for (size_t size = 0; size < content.size(); ++size) {
    test::write_file(folder_ / second_, content.substr(0, size));
    const auto message = refusal({first_, second_});
    INFO(size << ": " << message);
    CHECK_THAT(message, ContainsAll({(folder_ / second_).string(), "rank 1"}));
    if (is_checked || size < data) continue;
    const std::string name(1, static_cast<char>('a' + (size - data) / 48));
    CHECK_THAT(message, ContainsSubstring("'" + name + "'"));
  }
  test::write_file(folder_ / second_, content + "x");
  CHECK_THAT(refusal({first_, second_}), ContainsAll({second_, "rank 1"}));
}

TEST_CASE_METHOD(ShardFolder, "ShardFiles: a changed byte of a header is found where there are checksums") {
  put(first_, {half(0)}, {}, true);
  put(second_, {half(1)}, {}, true);
  const auto content = test::read_file(folder_ / second_);
  for (size_t at = 0; at + 48 < content.size(); ++at) {
    auto changed = content;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    test::write_file(folder_ / second_, changed);
    CHECK_THAT(refusal({first_, second_}), ContainsAll({second_, "rank 1", "not those that were written"}));
  }
}

TEST_CASE_METHOD(ShardFolder, "ShardFiles: headers of any length are read, each block once") {
  std::vector<ChunkEntry> chunks;
  for (int i = 0; i < 20'000; ++i) {
    chunks.push_back({.name = "layer." + std::to_string(i), .dtype = "uint8", .shape = {1}, .box = whole({1})});
  }
  const bool is_checked = GENERATE(false, true);
  const auto name = put("model-00001-of-00001.safetensors", chunks, {}, is_checked);
  test::CountingFileSystem counting;
  const auto catalog = read_shard_headers(counting, folder_.path(), {name}, checksums_);
  CHECK(catalog.tensors.size() == 20'000);
  const auto ranges = counting.ranges(name);
  REQUIRE(ranges.size() == 1);
  CHECK(ranges[0].first == 0);
  CHECK(ranges[0].second <= std::filesystem::file_size(folder_ / name));
}

TEST_CASE_METHOD(ShardFolder, "ShardFiles: chunks that contradict another file are refused with both") {
  const auto contradicts = [&](ChunkEntry chunk) {
    put(first_, {half(0)});
    put(second_, {std::move(chunk)});
    const auto message = refusal({first_, second_});
    CHECK_THAT(message, ContainsAll({second_, "'fc.weight'"}));
    return message;
  };
  auto chunk = half(1);
  chunk.dtype = "float16";
  CHECK_THAT(contradicts(chunk), ContainsAll({"float16", "float32", "rank 1"}));
  chunk = half(1);
  chunk.shape = {4, 7};
  CHECK_THAT(contradicts(chunk), ContainsAll({"[4, 7]", "[4, 6]", "rank 1"}));
  chunk.shape = {5, 6};
  CHECK_THAT(contradicts(chunk), ContainsAll({"[5, 6]", "[4, 6]"}));
  chunk.shape = {4, 6, 1};
  chunk.box = {.offsets = {2, 0, 0}, .sizes = {2, 6, 1}};
  CHECK_THAT(contradicts(chunk), ContainsAll({"[4, 6, 1]", "[4, 6]"}));
  chunk = half(1);
  chunk.box.offsets = {1, 0};
  CHECK_THAT(contradicts(chunk), ContainsAll({"stored twice", first_}));
}

TEST_CASE_METHOD(ShardFolder, "ShardFiles: metadata that contradict another file's are refused") {
  put(first_, {half(0)}, {{"groups", "[1]"}, {"only here", "x"}});
  put(second_, {half(1)}, {{"groups", "[1]"}, {"only there", "y"}});
  CHECK(read({first_, second_}).metadata ==
        std::map<std::string, std::string>{{"groups", "[1]"}, {"only here", "x"}, {"only there", "y"}});
  put(second_, {half(1)}, {{"groups", "[2]"}});
  CHECK_THAT(refusal({first_, second_}), ContainsAll({second_, "rank 1", "'groups'"}));
}

TEST_CASE_METHOD(ShardFolder, "ShardFiles: system errors are not reported as damage") {
  put(first_, {half(0)});
  put(second_, {half(1)});
  const auto read_with = [&](int at, int error) {
    test::FaultyFileSystem faulty(test::FaultyFileSystem::fail_at(at, error));
    read_shard_headers(faulty, folder_.path(), {first_, second_}, {});
  };
  for (int at = 0; at < 4; ++at) {
    CHECK_THAT(error_of<storage::UnreadableCheckpoint>([&] { read_with(at, EIO); }),
               ContainsAll({folder_.path().string(), at < 2 ? first_ : second_}));
    CHECK_THROWS_AS(read_with(at, ENOMEM), std::system_error);
  }
  std::filesystem::remove(folder_ / second_);
  std::filesystem::create_directory(folder_ / second_);
  CHECK_THAT(refusal({first_, second_}), ContainsSubstring(second_));
}

}  // namespace
}  // namespace ddp::shards
