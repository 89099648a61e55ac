#include "checkpoint/shards/block_file.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

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
using test::error_of;

std::string content_of(size_t size) {
  std::string content(size, '\0');
  for (size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * 2654435761U >> 13U);
  return content;
}

class BlockFiles {
 protected:
  explicit BlockFiles(size_t size = 3 * kBlockBytes + 1234)
      : content_(content_of(size)), blocks_(test::block_checksums(content_)) {
    test::write_file(path_, content_);
  }

  std::string read(uint64_t begin, uint64_t end, bool is_checked = true) {
    const BlockFile file(file_system_, path_, is_checked ? &blocks_ : nullptr);
    std::string text;
    auto next = begin;
    file.read(begin, end, buffer_, [&](uint64_t position, std::string_view bytes) {
      CHECK(position == next);
      CHECK_FALSE(bytes.empty());
      next += bytes.size();
      text += bytes;
    });
    return text;
  }
  std::string refusal(uint64_t begin, uint64_t end) {
    return error_of<storage::DamagedCheckpoint>([&] { read(begin, end); });
  }

  test::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "model-00001-of-00002.safetensors";
  std::string content_;
  std::vector<uint32_t> blocks_;
  test::CountingFileSystem file_system_;
  ReadBuffer buffer_;
};

TEST_CASE_METHOD(BlockFiles, "BlockFile: any part is what was written") {
  test::Random random(6);
  const auto size = static_cast<int64_t>(content_.size());
  for (int round = 0; round < 60; ++round) {
    auto begin = static_cast<uint64_t>(test::drawn(random, 0, size));
    auto end = static_cast<uint64_t>(test::drawn(random, static_cast<int64_t>(begin), size));
    if (round % 3 == 0) begin = begin / kBlockBytes * kBlockBytes;
    if (round % 4 == 0) end = std::min(end + 3, begin + 5);
    if (round == 0) begin = 0;
    if (round == 1) end = content_.size();
    end = std::min(end, content_.size());
    CAPTURE(begin, end);
    const auto expected = content_.substr(begin, end - begin);
    CHECK((read(begin, end) == expected));
    CHECK((read(begin, end, false) == expected));
  }
}

TEST_CASE_METHOD(BlockFiles, "BlockFile: whole blocks are read where they have checksums, and nothing else") {
  const auto ranges_of = [&](uint64_t begin, uint64_t end, bool is_checked) {
    file_system_.reset();
    read(begin, end, is_checked);
    return file_system_.ranges(path_.filename().string());
  };
  CHECK(ranges_of(10, 20, false) == std::vector{ByteRange(10, 20)});
  CHECK(ranges_of(10, 20, true) == std::vector{ByteRange(0, kBlockBytes)});
  CHECK(ranges_of(kBlockBytes - 1, kBlockBytes + 1, true) == std::vector{ByteRange(0, 2 * kBlockBytes)});
  CHECK(ranges_of(kBlockBytes, 2 * kBlockBytes, true) == std::vector{ByteRange(kBlockBytes, 2 * kBlockBytes)});
  CHECK(ranges_of(3 * kBlockBytes + 5, content_.size(), true) ==
        std::vector{ByteRange(3 * kBlockBytes, content_.size())});
  for (const uint64_t position : {uint64_t{0}, uint64_t{77}, kBlockBytes, content_.size()}) {
    CHECK(ranges_of(position, position, true).empty());
    CHECK(ranges_of(position, position, false).empty());
  }
}

TEST_CASE("BlockFile: large parts arrive in pieces of the buffer") {
  const test::TemporaryFolder folder;
  const auto content = content_of(2 * ReadBuffer::kBytes + 7);
  const auto blocks = test::block_checksums(content);
  test::write_file(folder / "a", content);
  test::CountingFileSystem file_system;
  for (const auto* each : {&blocks, static_cast<const std::vector<uint32_t>*>(nullptr)}) {
    const BlockFile file(file_system, folder / "a", each);
    ReadBuffer buffer;
    std::string text;
    file.read(3, content.size(), buffer, [&](uint64_t, std::string_view bytes) { text += bytes; });
    CHECK((text == content.substr(3)));
    CHECK(file_system.largest == ReadBuffer::kBytes);
  }
}

TEST_CASE_METHOD(BlockFiles, "BlockFile: a changed byte is found by who reads its block, wherever it is") {
  for (const size_t at : {size_t{0}, kBlockBytes - 1, kBlockBytes, 3 * kBlockBytes, content_.size() - 1}) {
    auto changed = content_;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    test::write_file(path_, changed);
    const auto block = at / kBlockBytes * kBlockBytes;
    const auto end = std::min(block + kBlockBytes, content_.size());
    CHECK_THAT(refusal(0, content_.size()),
               test::ContainsAll({path_.string(), "from " + std::to_string(block) + " to " + std::to_string(end),
                                  "not those that were written"}));
    CHECK_THAT(refusal(end - 1, end), ContainsSubstring("not those that were written"));
    if (block > 0) CHECK((read(0, block) == content_.substr(0, block)));
    CHECK((read(0, content_.size(), false) == changed));
  }
}

TEST_CASE_METHOD(BlockFiles, "BlockFile: a file that was truncated or made longer is refused") {
  for (const size_t size : {size_t{0}, size_t{1}, kBlockBytes, 3 * kBlockBytes, content_.size() - 1}) {
    test::write_file(path_, content_.substr(0, size));
    CHECK_THAT(refusal(content_.size() - 1, content_.size()),
               ContainsSubstring(path_.string()) && ContainsSubstring("has " + std::to_string(size) + " bytes"));
  }
  test::write_file(path_, content_ + "x");
  CHECK_THAT(refusal(content_.size() - 1, content_.size()), ContainsSubstring("not those that were written"));
  test::write_file(path_, content_ + std::string(kBlockBytes, 'x'));
  CHECK_THAT(refusal(0, 1), ContainsSubstring("but 4 blocks of 1 MiB were written"));
}

TEST_CASE_METHOD(BlockFiles, "BlockFile: what lies beyond the end is refused, whatever the numbers") {
  constexpr auto kMax = std::numeric_limits<uint64_t>::max();
  const auto size = content_.size();
  for (const auto& [begin, end] : {ByteRange(0, size + 1),
                                   {size + 1, size + 1},
                                   {size + 1, size + 2},
                                   {kMax, kMax},
                                   {0, kMax},
                                   {2, 1},
                                   {kMax, 0}}) {
    CAPTURE(begin, end);
    CHECK_THAT(refusal(begin, end), ContainsSubstring(path_.string()));
    CHECK_THAT(error_of<storage::DamagedCheckpoint>([&] { read(begin, end, false); }),
               ContainsSubstring(path_.string()));
  }
}

TEST_CASE_METHOD(BlockFiles, "BlockFile: errors of the system pass through") {
  for (int at = 0; at < 3; ++at) {
    test::FaultyFileSystem faulty(test::FaultyFileSystem::fail_at(at, EIO));
    const auto open_and_read = [&] {
      const BlockFile file(faulty, path_, &blocks_);
      ReadBuffer buffer;
      file.read(0, 1, buffer, [](uint64_t, std::string_view) {});
      file.read(kBlockBytes, kBlockBytes + 1, buffer, [](uint64_t, std::string_view) {});
    };
    CHECK_THAT(error_of<std::system_error>(open_and_read), ContainsSubstring("injected"));
  }
  CHECK_THROWS_AS(BlockFile(file_system_, folder_ / "none", nullptr), std::system_error);
  CHECK_THROWS_AS(BlockFile(file_system_, folder_.path(), nullptr), std::system_error);
}

TEST_CASE("BlockFile: an empty file") {
  const test::TemporaryFolder folder;
  test::write_file(folder / "a", "");
  storage::FileSystem file_system;
  const std::vector<uint32_t> none;
  const BlockFile file(file_system, folder / "a", &none);
  CHECK(file.size() == 0);
  ReadBuffer buffer;
  CHECK_NOTHROW(file.read(0, 0, buffer, [](uint64_t, std::string_view) { FAIL(); }));
  CHECK_THROWS_AS(file.read(0, 1, buffer, [](uint64_t, std::string_view) {}), storage::DamagedCheckpoint);
}

}  // namespace
}  // namespace ddp::shards
