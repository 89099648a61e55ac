#include "checkpoint/shards/chunk_reader.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "checkpoint/dcp/dcp_writer.h"
#include "checkpoint/shards/block_file.h"
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
using storage::kBlockBytes;
using test::ByteRange;
using test::drawn;
using test::error_of;
using test::Random;

// A catalog in files of a folder, and requests of it.
class Chunks {
 protected:
  // Tensors drawn at random, their chunks in any order in any file, some of which have checksums.
  void draw(Random& random) {
    const auto files = drawn(random, 1, 4);
    std::vector<std::string> contents;
    for (int64_t i = 0; i < files; ++i) {
      catalog_.files.push_back(folder_ / ("f" + std::to_string(i)));
      contents.emplace_back(static_cast<size_t>(drawn(random, 0, 200)), 'h');
    }
    struct Place {
      std::string name;
      Box box;
    };
    std::vector<Place> places;
    const std::vector<std::string> dtypes = {"float32", "bool", "float16", "int64", "complex128", "float8_e5m2"};
    const auto tensors = drawn(random, 1, 12);
    for (int64_t i = 0; i < tensors; ++i) {
      const auto name = "t" + std::to_string(i);
      auto& tensor = catalog_.tensors[name];
      tensor.dtype = dtypes[static_cast<size_t>(drawn(random, 0, 5))];
      tensor.shape = test::drawn_shape(random);
      for (auto& box : test::drawn_division(random, whole(tensor.shape), static_cast<int>(drawn(random, 1, 20)))) {
        places.push_back({.name = name, .box = std::move(box)});
      }
    }
    std::shuffle(places.begin(), places.end(), random);
    for (const auto& [name, box] : places) {
      auto& tensor = catalog_.tensors.at(name);
      const auto file = static_cast<size_t>(drawn(random, 0, files - 1));
      auto& content = contents[file];
      // Rarely far from the chunk before.
      content.append(static_cast<size_t>(drawn(random, 0, 40) == 0 ? drawn(random, 0, 5 << 19) : drawn(random, 0, 9)),
                     'g');
      const auto bytes = test::box_bytes(name, tensor, box);
      tensor.chunks.push_back(
          {.box = box, .file = static_cast<uint32_t>(file), .begin = content.size(), .size = bytes.size()});
      content += bytes;
    }
    for (size_t i = 0; i < contents.size(); ++i) {
      test::write_file(catalog_.files[i], contents[i]);
      if (drawn(random, 0, 1) == 0) checksums_[catalog_.files[i].filename()] = test::block_checksums(contents[i]);
      sizes_[catalog_.files[i].filename()] = contents[i].size();
    }
    check(catalog_);
  }

  void request(const std::string& name, const Box& box) {
    const auto& tensor = catalog_.tensors.at(name);
    auto& expected = expected_.emplace_back(test::box_bytes(name, tensor, box));
    auto& target = targets_.emplace_back(expected.size() + 2, '#');  // the edges must stay
    requests_.push_back({.name = name, .tensor = &tensor, .box = box, .target = target.data() + 1});
  }

  void request_some(Random& random) {
    const auto count = drawn(random, 0, 12);
    for (int64_t i = 0; i < count; ++i) {
      auto tensor = catalog_.tensors.begin();
      std::advance(tensor, drawn(random, 0, static_cast<int64_t>(catalog_.tensors.size()) - 1));
      request(tensor->first, test::drawn_part(random, whole(tensor->second.shape)));
    }
  }

  void require_all() const {
    for (size_t i = 0; i < requests_.size(); ++i) {
      INFO("request " << i << " of " << requests_[i].name);
      REQUIRE((targets_[i] == "#" + expected_[i] + "#"));
    }
  }

  // The bytes that the requests need, neighbours and those with small gaps between them together, by file.
  std::map<std::string, std::vector<ByteRange>> needed() const {
    std::map<std::string, std::set<ByteRange>> elements;
    for (const auto& request : requests_) {
      for (const auto& chunk : request.tensor->chunks) {
        const auto part = common_part(chunk.box, request.box);
        if (!part) continue;
        const auto bytes = pt::dtype_by_name(request.tensor->dtype)->bytes;
        const std::vector<int64_t> sizes = chunk.box.sizes;
        test::for_each_place(*part, [&](auto place) {
          for (size_t i = 0; i < place.size(); ++i) place[i] -= chunk.box.offsets[i];
          const auto begin = chunk.begin + static_cast<uint64_t>(test::linear(place, sizes)) * bytes;
          elements[catalog_.files[chunk.file].filename()].emplace(begin, begin + bytes);
        });
      }
    }
    std::map<std::string, std::vector<ByteRange>> ranges;
    for (const auto& [file, each] : elements) {
      for (const auto& range : each) add(ranges[file], range, kBlockBytes);
    }
    return ranges;
  }

  // What must be read for it.
  std::map<std::string, std::vector<ByteRange>> asked() const {
    auto ranges = needed();
    for (auto& [file, each] : ranges) {
      if (!checksums_.contains(file)) continue;
      std::vector<ByteRange> rounded;
      for (auto [begin, end] : each) {
        begin = begin / kBlockBytes * kBlockBytes;
        end = std::min((end + kBlockBytes - 1) / kBlockBytes * kBlockBytes, sizes_.at(file));
        add(rounded, {begin, end}, 0);
      }
      each = rounded;
    }
    return ranges;
  }

  static void add(std::vector<ByteRange>& ranges, const ByteRange& range, uint64_t gap) {
    if (!ranges.empty() && range.first <= ranges.back().second + gap) {
      ranges.back().second = std::max(ranges.back().second, range.second);
    } else {
      ranges.push_back(range);
    }
  }

  std::string refusal() {
    return error_of<storage::DamagedCheckpoint>([&] { read_chunks(file_system_, catalog_, checksums_, requests_); });
  }

  test::TemporaryFolder folder_;
  test::CountingFileSystem file_system_;
  TensorCatalog catalog_;
  BlockChecksums checksums_;
  std::map<std::string, uint64_t> sizes_;
  std::vector<ReadRequest> requests_;
  std::vector<std::string> expected_;
  std::vector<std::string> targets_;

  Chunks() {
    // Requests point into them.
    expected_.reserve(100);
    targets_.reserve(100);
  }
};

TEST_CASE("ChunkReader: any requests are what single elements say, and no other bytes are read, none twice") {
  class Drawn : public Chunks {
   public:
    void run(Random& random) {
      draw(random);
      request_some(random);
      read_chunks(file_system_, catalog_, checksums_, requests_);
      require_all();
      uint64_t bytes = 0;
      for (const auto& [file, ranges] : needed()) {
        for (const auto& [begin, end] : ranges) bytes += end - begin;
      }
      REQUIRE(bytes_to_read(requests_) == bytes);
      const auto expected = asked();
      REQUIRE(file_system_.opened.size() == expected.size());
      for (const auto& [file, ranges] : expected) {
        INFO(file);
        REQUIRE(file_system_.ranges(file) == ranges);
        REQUIRE(file_system_.opened.at(file) == 1);
      }
    }
  };
  for (uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    Random random(seed);
    Drawn().run(random);
  }
}

// A sparse file of zeros with one tensor.
class LargeTensor : public Chunks {
 protected:
  void put(const std::vector<int64_t>& shape, const std::vector<Box>& boxes, bool is_checked) {
    catalog_.files = {folder_ / "large"};
    auto& tensor = catalog_.tensors["w"];
    tensor = {.dtype = "float32", .shape = shape};
    uint64_t position = 4096;
    for (const auto& box : boxes) {
      const auto size = static_cast<uint64_t>(numel(box)) * 4;
      tensor.chunks.push_back({.box = box, .begin = position, .size = size});
      position += size;
    }
    check(catalog_);
    test::write_file(catalog_.files[0], "");
    std::filesystem::resize_file(catalog_.files[0], position);
    if (!is_checked) return;
    const std::string zeros(kBlockBytes, '\0');
    checksums_["large"].assign((position + kBlockBytes - 1) / kBlockBytes, crc32c(zeros));
    const auto rest = position % kBlockBytes;
    if (rest != 0) checksums_["large"].back() = crc32c(std::string_view(zeros).substr(0, rest));
  }

  uint64_t bytes_read() const {
    uint64_t bytes = 0;
    for (const auto& [begin, end] : file_system_.ranges("large")) bytes += end - begin;
    return bytes;
  }

  void request_zeros(const Box& box) {
    auto& target = targets_.emplace_back(static_cast<size_t>(numel(box)) * 4, '#');
    requests_.push_back({.name = "w", .tensor = &catalog_.tensors.at("w"), .box = box, .target = target.data()});
  }

  void require_zeros() const {
    for (const auto& target : targets_) REQUIRE(target.find_first_not_of('\0') == std::string::npos);
  }
};

TEST_CASE_METHOD(LargeTensor, "ChunkReader: of wide rows only the blocks with wanted columns are read") {
  const bool is_checked = GENERATE(false, true);
  put({64, 1 << 20}, {whole({64, 1 << 20})}, is_checked);
  request_zeros({.offsets = {0, 300'000}, .sizes = {64, 10}});
  read_chunks(file_system_, catalog_, checksums_, requests_);
  require_zeros();
  CHECK(bytes_to_read(requests_) == 64 * 40);
  CHECK(bytes_read() == (is_checked ? 64 * kBlockBytes : 64 * 40));
}

TEST_CASE_METHOD(LargeTensor, "ChunkReader: gaps of three dimensions") {
  put({4, 8, 1 << 18}, {whole({4, 8, 1 << 18})}, false);
  SECTION("two rows of each matrix, whose neighbours are close") {
    request_zeros({.offsets = {0, 2, 0}, .sizes = {4, 2, 1 << 18}});
    CHECK(bytes_to_read(requests_) == 4 * (2 << 20));
  }
  SECTION("few columns of two rows of each matrix") {
    request_zeros({.offsets = {0, 2, 5}, .sizes = {4, 2, 3}});
    CHECK(bytes_to_read(requests_) == 4 * ((1 << 20) + 12));  // the gap in the rows is less than a MiB
  }
  SECTION("two requests whose runs lie between each other") {
    request_zeros({.offsets = {0, 2, 0}, .sizes = {4, 1, 1 << 18}});
    request_zeros({.offsets = {0, 3, 0}, .sizes = {4, 1, 1 << 18}});
    CHECK(bytes_to_read(requests_) == 4 * (2 << 20));
  }
  read_chunks(file_system_, catalog_, checksums_, requests_);
  require_zeros();
  CHECK(bytes_read() == bytes_to_read(requests_));
}

TEST_CASE_METHOD(LargeTensor, "ChunkReader: the buffer is the only memory, also for large chunks") {
  put({50, 1 << 18}, {whole({50, 1 << 18})}, true);
  request_zeros(whole({50, 1 << 18}));
  read_chunks(file_system_, catalog_, checksums_, requests_);
  require_zeros();
  CHECK(file_system_.largest == ReadBuffer::kBytes);
}

TEST_CASE_METHOD(LargeTensor, "ChunkReader: many narrow columns take time in proportion to their bytes") {
  constexpr int64_t kRows = 1 << 21;
  put({kRows, 8}, {whole({kRows, 8})}, false);
  for (int64_t i = 0; i < 8; ++i) request_zeros({.offsets = {0, i}, .sizes = {kRows, 1}});
  const auto begin = std::chrono::steady_clock::now();
  read_chunks(file_system_, catalog_, checksums_, requests_);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));  // for hangs
  require_zeros();
  CHECK(bytes_read() == kRows * 32);
}

// Three tensors of 2 MiB each in one file, the second one in two chunks.
class ThreeTensors : public Chunks {
 protected:
  static constexpr int64_t kElements = 1 << 17;  // of 16 bytes

  ThreeTensors() {
    catalog_.files = {folder_ / "model-00002-of-00003.safetensors"};
    for (const auto* name : {"a", "b", "c"}) {
      auto& tensor = catalog_.tensors[name];
      tensor = {.dtype = "complex128", .shape = {kElements}};
      const int64_t chunks = *name == 'b' ? 2 : 1;
      for (int64_t i = 0; i < chunks; ++i) {
        const Box box{.offsets = {i * kElements / chunks}, .sizes = {kElements / chunks}};
        tensor.chunks.push_back({.box = box, .begin = content_.size(), .size = static_cast<uint64_t>(numel(box)) * 16});
        content_ += test::box_bytes(name, tensor, box);
      }
    }
    check(catalog_);
    test::write_file(path(), content_);
    for (const auto* name : {"a", "b", "c"}) request(name, whole({kElements}));
  }

  const std::filesystem::path& path() const { return catalog_.files[0]; }
  void check_blocks() { checksums_[path().filename()] = test::block_checksums(content_); }

  std::string content_;
};

TEST_CASE_METHOD(ThreeTensors, "ChunkReader: changed bytes are named with the file and the tensor that has them") {
  check_blocks();
  constexpr size_t kTensor = 16 * kElements;
  const std::vector<std::pair<size_t, std::string>> places = {
      {5, "'a'"}, {kTensor - 1, "'a'"}, {kTensor, "'b'"}, {2 * kTensor - 1, "'b'"}, {2 * kTensor, "'c'"}};
  for (const auto& [at, name] : places) {
    auto changed = content_;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    test::write_file(path(), changed);
    CHECK_THAT(refusal(), test::ContainsAll({path().string(), "not those that were written", "they hold " + name}) &&
                              !ContainsSubstring("others"));
  }
}

TEST_CASE_METHOD(ThreeTensors, "ChunkReader: a damaged block of several tensors names one of them and says so") {
  // Everything moves by half a block.
  for (auto& [name, tensor] : catalog_.tensors) {
    for (auto& chunk : tensor.chunks) chunk.begin += kBlockBytes / 2;
  }
  content_.insert(0, kBlockBytes / 2, 'h');
  check_blocks();
  content_[16 * kElements + 7] = static_cast<char>(content_[16 * kElements + 7] ^ 1);
  test::write_file(path(), content_);
  CHECK_THAT(refusal(), ContainsSubstring("they hold 'a' and others"));
  UNSCOPED_INFO("of those that were asked for");
  requests_.erase(requests_.begin());
  CHECK_THAT(refusal(), ContainsSubstring("they hold 'b'") && !ContainsSubstring("others"));
}

TEST_CASE_METHOD(ThreeTensors, "ChunkReader: a short file is named with a tensor of which bytes are missing") {
  const bool is_checked = GENERATE(false, true);
  if (is_checked) check_blocks();
  constexpr size_t kTensor = 16 * kElements;
  const std::vector<std::pair<size_t, std::string>> sizes = {
      {0, "'a' and others"},       {kTensor - 1, "'a' and others"},
      {kTensor, "'b' and others"}, {2 * kTensor - 1, "'b' and others"},
      {2 * kTensor, "'c'"},        {3 * kTensor - 1, "'c'"}};
  for (const auto& [size, names] : sizes) {
    test::write_file(path(), content_.substr(0, size));
    const auto message = refusal();
    CAPTURE(size, message);
    CHECK_THAT(message, test::ContainsAll({path().string(), "has " + std::to_string(size) + " bytes"}));
    CHECK_THAT(message, ContainsSubstring("they hold " + names));
    CHECK((message.find("others") != std::string::npos) == (names.find("others") != std::string::npos));
  }
  test::write_file(path(), content_ + std::string(kBlockBytes, 'x'));
  if (is_checked) CHECK_THAT(refusal(), ContainsSubstring("blocks of 1 MiB were written"));
  if (!is_checked) CHECK(refusal() == "no error");
}

TEST_CASE_METHOD(ThreeTensors, "ChunkReader: what was read before an error may be in the targets, nothing elsewhere") {
  check_blocks();
  content_.back() = static_cast<char>(content_.back() ^ 1);
  test::write_file(path(), content_);
  CHECK(refusal() != "no error");
  for (const auto& target : targets_) CHECK((target.front() == '#' && target.back() == '#'));
}

TEST_CASE_METHOD(ThreeTensors, "ChunkReader: errors of the system pass through with the path") {
  for (int at = 0; at < 2; ++at) {
    test::FaultyFileSystem faulty(test::FaultyFileSystem::fail_from(at, EIO));
    CHECK_THAT(error_of<std::system_error>([&] { read_chunks(faulty, catalog_, checksums_, requests_); }),
               ContainsSubstring("injected") && ContainsSubstring(path().filename().string()));
  }
  std::filesystem::remove(path());
  CHECK_THAT(error_of<std::system_error>([&] { read_chunks(file_system_, catalog_, checksums_, requests_); }),
             ContainsSubstring(path().string()));
}

TEST_CASE_METHOD(ThreeTensors, "ChunkReader: nothing is opened for nothing") {
  std::filesystem::remove(path());
  requests_.clear();
  requests_.push_back({.name = "a", .tensor = &catalog_.tensors.at("a"), .box = {.offsets = {3}, .sizes = {0}}});
  CHECK_NOTHROW(read_chunks(file_system_, catalog_, checksums_, requests_));
  CHECK(bytes_to_read(requests_) == 0);
  CHECK(file_system_.opened.empty());
}

TEST_CASE_METHOD(ThreeTensors, "ChunkReader: elements are not taken for an archive of torch.save()") {
  catalog_.tensors.at("b").chunks[1].form = ChunkForm::kTorchSave;
  CHECK_THAT(error_of<storage::DamagedCheckpoint>([&] { read_chunks(file_system_, catalog_, checksums_, requests_); }),
             ContainsSubstring("'b'"));
}

// Two tensors as items of torch.save() in one file: a small one, and a large one.
class SavedItems : public Chunks {
 protected:
  SavedItems() {
    dcp::DcpFile file(file_system_, folder_.path(), 0);
    for (const auto& [name, rows] : {std::pair("large", 300), {"small", 5}}) {
      auto& tensor = catalog_.tensors[name];
      tensor = {.dtype = "complex128", .shape = {rows, 300}};
      const auto bytes = test::box_bytes(name, tensor, whole(tensor.shape));
      file.add_tensor({.path = {name}, .dtype = tensor.dtype, .shape = tensor.shape}, whole(tensor.shape),
                      [&](storage::ByteSink& sink) { sink.write(bytes.data(), bytes.size()); });
    }
    for (const auto& record : file.finish()) {
      catalog_.files = {folder_ / record.item.file};
      catalog_.tensors.at(std::get<std::string>(record.path.at(0)))
          .chunks.push_back(
              {.box = record.box, .begin = record.item.begin, .size = record.item.size, .form = ChunkForm::kTorchSave});
    }
    check(catalog_);
  }

  const std::filesystem::path& path() const { return catalog_.files[0]; }
};

TEST_CASE_METHOD(SavedItems, "ChunkReader: parts of items of torch.save() are read without the rest") {
  Random random(9);
  for (int round = 0; round < 20; ++round) {
    requests_.clear();
    expected_.clear();
    targets_.clear();
    request("small", test::drawn_part(random, whole({5, 300})));
    request("large", test::drawn_part(random, whole({300, 300})));
    request("large", {.offsets = {7, 3}, .sizes = {2, 5}});
    if (round == 0) request("large", whole({300, 300}));
    read_chunks(file_system_, catalog_, checksums_, requests_);
    require_all();
  }
  file_system_.reset();
  requests_.clear();
  request("large", {.offsets = {7, 3}, .sizes = {2, 5}});
  read_chunks(file_system_, catalog_, checksums_, requests_);
  uint64_t bytes = 0;
  for (const auto& [begin, end] : file_system_.ranges(path().filename())) bytes += end - begin;
  CHECK(bytes < 20'000);
}

TEST_CASE_METHOD(SavedItems, "ChunkReader: an item of torch.save() that is short or damaged is named with its tensor") {
  const auto content = test::read_file(path());
  const auto& item = catalog_.tensors.at("small").chunks[0];
  request("small", whole({5, 300}));
  SECTION("short") {
    for (const auto size : {item.begin, item.begin + 100, item.begin + item.size - 1}) {
      test::write_file(path(), content.substr(0, size));
      CHECK_THAT(refusal(), test::ContainsAll({path().string(), "has " + std::to_string(size) + " bytes", "'small'"}));
    }
    request("large", {.offsets = {7, 3}, .sizes = {2, 5}});
    test::write_file(path(), content.substr(0, 100));
    CHECK_THAT(refusal(), ContainsSubstring("'small'") || ContainsSubstring("'large'"));
    requests_.erase(requests_.begin());
    CHECK_THAT(refusal(), test::ContainsAll({path().string(), "has 100 bytes", "'large'"}));
  }
  SECTION("changed") {
    auto changed = content;
    changed[item.begin + item.size / 2] = static_cast<char>(changed[item.begin + item.size / 2] ^ 1);
    test::write_file(path(), changed);
    CHECK_THAT(refusal(), test::ContainsAll({path().string(), "'small'", "damaged"}));
  }
  SECTION("changed in a large one that is wanted whole") {
    requests_.clear();
    request("large", whole({300, 300}));
    auto changed = content;
    changed[1'000'000] = static_cast<char>(changed[1'000'000] ^ 1);
    test::write_file(path(), changed);
    CHECK_THAT(refusal(), test::ContainsAll({path().string(), "'large'", "damaged"}));
  }
}

}  // namespace
}  // namespace ddp::shards
