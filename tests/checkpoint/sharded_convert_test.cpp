// Sharded checkpoints as sources of the tool: tensors in chunks of any shape become whole again, through bounded
// memory, and what is damaged is named.
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "checkpoint/folders/sharded_folder.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/shards/chunk_reader.h"
#include "checkpoint/shards/shard_files.h"
#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/manifest.h"
#include "checkpoint/storage/staged_folder.h"
#include "checkpoint/tool/convert.h"
#include "checkpoint/tool/element_reader.h"
#include "checkpoint/tool/new_folder.h"
#include "checkpoint/tool/tensor_source.h"
#include "tests/checkpoint/text_sink.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace ddp::tool {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using test::error_of;

struct Whole {
  std::string dtype{};
  std::vector<int64_t> shape{};
  std::string bytes{};
  bool operator==(const Whole&) const = default;
};
using Wholes = std::map<std::string, Whole>;

std::string random_bytes(std::mt19937& random, size_t size) {
  std::string bytes(size, '\0');
  std::ranges::generate(bytes, [&] { return static_cast<char>(random()); });
  return bytes;
}

size_t bytes_of(const std::string& dtype, const std::vector<int64_t>& sizes) {
  size_t bytes = pt::dtype_by_name(dtype)->bytes;
  for (const auto size : sizes) bytes *= static_cast<size_t>(size);
  return bytes;
}

// The elements of `box`.
std::string part_of(const Whole& tensor, const shards::Box& box) {
  std::string part(bytes_of(tensor.dtype, box.sizes), '\0');
  if (part.empty()) return part;
  const auto element = pt::dtype_by_name(tensor.dtype)->bytes;
  const shards::Runs runs(box, shards::whole(tensor.shape), box);
  for (int64_t i = 0; i < runs.size(); ++i) {
    const auto run = runs[i];
    tensor.bytes.copy(part.data() + run.to * element, run.count * element, run.from * element);
  }
  return part;
}

// Cuts `box` into two somewhere, again and again.
void cut(std::mt19937& random, const shards::Box& box, int depth, std::vector<shards::Box>& parts) {
  const auto dimension = box.sizes.empty() ? 0 : random() % box.sizes.size();
  if (depth == 0 || box.sizes.empty() || box.sizes[dimension] < 2) {
    parts.push_back(box);
    return;
  }
  auto first = box;
  auto second = box;
  first.sizes[dimension] = 1 + static_cast<int64_t>(random() % static_cast<unsigned>(box.sizes[dimension] - 1));
  second.offsets[dimension] += first.sizes[dimension];
  second.sizes[dimension] -= first.sizes[dimension];
  cut(random, first, depth - 1, parts);
  cut(random, second, depth - 1, parts);
}

class ShardedConvert {
 protected:
  // A sharded checkpoint of `ranks` ranks, each of which has some of the chunks.
  fs::path save(std::mt19937& random, const Wholes& tensors, int ranks, int depth) {
    std::vector<std::map<std::string, shards::Box>> of_rank(static_cast<size_t>(ranks));
    for (const auto& [name, tensor] : tensors) {
      std::vector<shards::Box> parts;
      cut(random, shards::whole(tensor.shape), depth, parts);
      // A rank has one chunk of a tensor at most.
      if (parts.size() > of_rank.size()) parts = {shards::whole(tensor.shape)};
      std::vector<size_t> owners(of_rank.size());
      for (size_t i = 0; i < owners.size(); ++i) owners[i] = i;
      std::ranges::shuffle(owners, random);
      for (size_t i = 0; i < parts.size(); ++i) of_rank[owners[i]][name] = parts[i];
    }
    storage::StagedFolder staged(file_system_, folder_ / "run", 5);
    shards::BlockChecksums checksums;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto bytes = file_of(tensors, of_rank[static_cast<size_t>(rank)]);
      const auto name = shards::shard_file_name("model.safetensors", rank, ranks);
      staged.write(name, [&](storage::ByteSink& sink) { sink.write(bytes.data(), bytes.size()); });
      auto& blocks = checksums[name];
      for (size_t begin = 0; begin < bytes.size(); begin += storage::kBlockBytes) {
        blocks.push_back(crc32c(std::string_view(bytes).substr(begin, storage::kBlockBytes)));
      }
    }
    const auto text = shards::format_block_checksums(checksums);
    staged.write(shards::kBlockChecksumsFile, [&](storage::ByteSink& sink) { sink.write(text.data(), text.size()); });
    staged.commit({.sequence = 1, .world_size = ranks});
    return folder_ / "run" / storage::folder_name(5);
  }

  static std::string file_of(const Wholes& tensors, const std::map<std::string, shards::Box>& boxes) {
    std::vector<shards::ChunkEntry> chunks;
    for (const auto& [name, box] : boxes) {
      chunks.push_back({.name = name, .dtype = tensors.at(name).dtype, .shape = tensors.at(name).shape, .box = box});
    }
    const auto header = shards::shard_header(chunks, {});
    auto bytes = safetensors::format_header(header);
    for (const auto& entry : header.tensors) bytes += part_of(tensors.at(entry.name), boxes.at(entry.name));
    return bytes;
  }

  // In the block of the header are bytes of the tensor, too.
  static void bytes_changed_in_header(const fs::path& source, const fs::path& path, std::string bytes) {
    bytes[10] ^= 1;
    test::write_file(path, bytes);
    CHECK_THAT(error_of([&] { TensorSource{source}; }),
               ContainsSubstring("(rank 1's part)") && ContainsSubstring("a part of 'w'"));
    bytes[10] ^= 1;
    bytes[1000] ^= 1;
    test::write_file(path, bytes);
    CHECK_THAT(error_of([&] { TensorSource{source}; }), ContainsSubstring("(rank 1's part); they hold 'w'"));
  }

  static Wholes read(const fs::path& path) {
    const TensorSource source(path);
    Wholes result;
    ElementReader reader;
    const auto& files = source.files();
    const auto& file = files.contains("") ? files.at("") : files.at(std::string(kModelFile));
    for (const auto& tensor : file.tensors) reader.add(tensor);
    for (size_t i = 0; i < file.tensors.size(); ++i) {
      test::TextSink sink;
      reader.write(i, sink);
      result[file.tensors[i].name] = {file.tensors[i].dtype, file.tensors[i].sizes, sink.text};
    }
    return result;
  }

  storage::FileSystem file_system_;
  test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(ShardedConvert, "ShardedConvert: chunks of any shape become the tensors again, in every form") {
  std::mt19937 random(7);
  const std::vector<std::string> dtypes{"float32", "bfloat16", "int64", "bool", "complex64", "float8_e4m3fn"};
  for (int round = 0; round < 40; ++round) {
    Wholes tensors;
    for (int i = 0; i < 6; ++i) {
      Whole tensor{.dtype = dtypes[random() % dtypes.size()]};
      for (unsigned axis = random() % 4; axis > 0; --axis)
        tensor.shape.push_back(random() % 9 == 0 ? 0 : 1 + random() % 7);
      tensor.bytes = random_bytes(random, bytes_of(tensor.dtype, tensor.shape));
      tensors["t" + std::to_string(i)] = tensor;
    }
    const auto source = save(random, tensors, 1 + static_cast<int>(random() % 5), static_cast<int>(random() % 3));
    INFO(round);
    REQUIRE(read(source) == tensors);
    for (const auto* name : {"a.pt", "a.safetensors"}) {
      CHECK(convert(TensorSource(source), folder_ / name).size() <= 1);  // the step
      REQUIRE(read(folder_ / name) == tensors);
    }
    convert(TensorSource(source), folder_ / "hf", {.to = TargetForm::kHuggingFace, .max_file_size = 100});
    REQUIRE(read(folder_ / "hf") == tensors);
    convert(TensorSource(source), folder_ / "dcp", {.to = TargetForm::kDcp});
    REQUIRE(read(folder_ / "dcp") == tensors);
    convert(TensorSource(folder_ / "dcp"), folder_ / "new" / "step-00000005", {.to = TargetForm::kCheckpoint});
    REQUIRE(read(folder_ / "new" / "step-00000005") == tensors);
    CHECK(fs::exists(folder_ / "new" / "step-00000005" / "ranks.safetensors"));  // as CheckpointManager expects
    for (const auto* name : {"hf", "dcp", "new", "run"}) fs::remove_all(folder_ / name);
  }
}

TEST_CASE_METHOD(ShardedConvert, "ShardedConvert: parts of items of a DCP folder are read alone, whole ones compared") {
  std::mt19937 random(9);
  Wholes tensors;
  for (const auto& [name, shape] :
       std::map<std::string, std::vector<int64_t>>{{"large", {1000, 700}}, {"small", {40, 3, 5}}, {"number", {}}}) {
    tensors[name] = {.dtype = "float32", .shape = shape, .bytes = random_bytes(random, bytes_of("float32", shape))};
  }
  convert(TensorSource(save(random, tensors, 1, 0)), folder_ / "dcp", {.to = TargetForm::kDcp});
  const auto opened = open_dcp_folder(file_system_, folder_ / "dcp");
  const auto& part = *opened.parts.at("model.safetensors");
  std::vector<std::string> results;
  std::vector<shards::ReadRequest> requests;
  results.reserve(60);
  for (int i = 0; i < 60; ++i) {
    const auto& [name, tensor] = *std::next(tensors.begin(), random() % 3);
    std::vector<shards::Box> boxes;
    cut(random, shards::whole(tensor.shape), static_cast<int>(random() % 3), boxes);
    const auto& box = boxes[random() % boxes.size()];
    auto& result = results.emplace_back(part_of(tensor, box).size(), '\0');
    requests.push_back({.name = name, .tensor = &part.catalog.tensors.at(name), .box = box, .target = result.data()});
  }
  shards::read_chunks(file_system_, part.catalog, *part.checksums, requests);
  for (size_t i = 0; i < results.size(); ++i) {
    INFO(requests[i].name);
    REQUIRE(results[i] == part_of(tensors.at(requests[i].name), requests[i].box));
  }
  // A changed element is found where the whole item is read.
  const auto path = folder_ / "dcp" / "__0_0.distcp";
  const auto bytes = test::read_file(path);
  for (const auto* name : {"large", "small"}) {
    auto changed = bytes;
    changed[changed.find(tensors.at(name).bytes.substr(0, 40)) + 20] ^= 1;
    test::write_file(path, changed);
    CHECK_THAT(error_of([&] { convert(TensorSource(folder_ / "dcp"), folder_ / "x.pt"); }),
               ContainsSubstring("__0_0.distcp") && ContainsSubstring(name));
    CHECK_THAT(error_of([&] { TensorSource(folder_ / "dcp").verify(); }), ContainsSubstring(name));
  }
}

TEST_CASE_METHOD(ShardedConvert, "ShardedConvert: tensors larger than the buffer come in pieces") {
  std::mt19937 random(3);
  Wholes tensors;
  for (const auto& [name, shape] : std::map<std::string, std::vector<int64_t>>{
           {"columns", {5000, 1300}}, {"deep", {3, 2, 1500, 700}}, {"one_row", {1, 6'000'000}}, {"small", {3}}}) {
    tensors[name] = {.dtype = "float32", .shape = shape, .bytes = random_bytes(random, bytes_of("float32", shape))};
  }
  const auto source = save(random, tensors, 4, 2);
  REQUIRE(read(source) == tensors);
  convert(TensorSource(source), folder_ / "a.pt");
  REQUIRE(read(folder_ / "a.pt") == tensors);
  TensorSource(source).verify();
}

TEST_CASE("ShardedConvert: the pieces of a tensor are all of it, in order, and none is too large") {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> shape;
    for (unsigned axis = random() % 5; axis > 0; --axis) shape.push_back(1 + random() % 6);
    const uint64_t most = 1 + random() % 200;
    const auto pieces = row_major_pieces(shape, 4, most);
    int64_t next = 0;
    for (const auto& piece : pieces) {
      REQUIRE(shards::is_inside(piece, shape));
      const shards::Runs runs(piece, shards::whole(shape), piece);
      REQUIRE(runs.size() == 1);
      REQUIRE(runs[0].from == next);
      next += runs[0].count;
      REQUIRE(static_cast<uint64_t>(runs[0].count) <= std::max<uint64_t>(1, most / 4));
    }
    REQUIRE(next == shards::numel(shards::whole(shape)));
  }
}

TEST_CASE_METHOD(ShardedConvert, "ShardedConvert: what is missing, short or changed is named") {
  std::mt19937 random(2);
  const Wholes tensors{{"w", {.dtype = "int32", .shape = {500'000, 3}, .bytes = random_bytes(random, 6'000'000)}}};
  const auto source = save(random, tensors, 2, 1);
  const auto path = source / "model-00002-of-00002.safetensors";
  const auto bytes = test::read_file(path);
  auto changed = bytes;
  changed.back() ^= 1;
  test::write_file(path, changed);
  TensorSource opened(source);  // the headers are good
  CHECK_THAT(error_of([&] { opened.verify(); }), ContainsSubstring("model-00002-of-00002") &&
                                                     ContainsSubstring("CRC32C") &&
                                                     ContainsSubstring("(rank 1's part); they hold 'w'"));
  CHECK_THAT(error_of([&] { convert(opened, folder_ / "x.pt"); }), ContainsSubstring("they hold 'w'"));
  CHECK_FALSE(fs::exists(folder_ / "x.pt"));
  test::write_file(path, bytes.substr(0, bytes.size() - 1));
  CHECK_THAT(error_of([&] { TensorSource{source}; }),
             ContainsSubstring("(rank 1's part) has") && ContainsSubstring("it lacks 'w'"));
  fs::remove(path);
  CHECK_THAT(error_of([&] { TensorSource{source}; }),
             ContainsSubstring("(rank 1's part)") && ContainsSubstring("'w' is not complete"));
  test::write_file(path, bytes);
  bytes_changed_in_header(source, path, bytes);
  test::write_file(path, bytes.substr(0, 20));
  CHECK_THAT(error_of([&] { TensorSource{source}; }), ContainsSubstring("it held a part of 'w'"));
  test::write_file(path, bytes);
  const auto unnamed = folder_ / "x.tmp-12ab";
  fs::copy(source, unnamed);
  CHECK_NOTHROW(TensorSource{unnamed});
  fs::remove(unnamed / storage::kManifestName);
  CHECK_THAT(error_of([&] { TensorSource{unnamed}; }),
             ContainsSubstring("it has block-checksums.txt, but no MANIFEST.json"));
  fs::remove(source / shards::kBlockChecksumsFile);
  CHECK_THAT(error_of([&] { TensorSource{source}; }), ContainsSubstring(shards::kBlockChecksumsFile));
}

TEST_CASE_METHOD(ShardedConvert, "ShardedConvert: shards without a manifest are a source, and a missing one is named") {
  std::mt19937 random(4);
  const Wholes tensors{{"a", {.dtype = "float32", .shape = {9, 2}, .bytes = random_bytes(random, 72)}},
                       {"b", {.dtype = "float64", .shape = {}, .bytes = random_bytes(random, 8)}}};
  const auto source = save(random, tensors, 3, 1);
  fs::create_directory(folder_ / "shards");
  for (const auto& entry : fs::directory_iterator(source)) {
    if (entry.path().extension() == ".safetensors") fs::copy(entry, folder_ / "shards" / entry.path().filename());
  }
  CHECK(read(folder_ / "shards") == tensors);
  fs::remove(folder_ / "shards" / "model-00003-of-00003.safetensors");
  CHECK_THAT(error_of([&] { TensorSource{folder_ / "shards"}; }),
             ContainsSubstring("model-00003-of-00003.safetensors (rank 2's part) is missing"));
}

TEST_CASE_METHOD(ShardedConvert, "ShardedConvert: a new folder is there when it is whole, and replaces nothing") {
  const auto put = [](storage::ByteSink& sink) { sink.write("x", 1); };
  {
    NewFolder folder(file_system_, folder_ / "below" / "new" / "");
    folder.write("file", put);
    CHECK_FALSE(fs::exists(folder_ / "below" / "new"));
  }
  CHECK(fs::is_empty(folder_ / "below"));
  NewFolder folder(file_system_, folder_ / "below" / "new");
  folder.write("file", put);
  folder.commit();
  CHECK(test::read_file(folder_ / "below" / "new" / "file") == "x");
  CHECK_THAT(error_of([&] { NewFolder(file_system_, folder_ / "below" / "new"); }), ContainsSubstring("exists"));
  CHECK_THROWS(NewFolder(file_system_, "/"));
}

}  // namespace
}  // namespace ddp::tool
